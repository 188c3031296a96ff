// What the page says, in each language. The page itself is written in English.
export const words = {
  en: {
    ran: "charged", same: "replayed", cutoff: "reply cut off", one: "One charge, however often it was sent.",
    many: (n) => `${n} charges for one order: this is what happens without onlyonce.`, none: "No charge yet.",
    behind: "onlyonce", hand: "by hand", lost: "the client never saw the answer; the service goes on",
  },
  zh: {
    tagline: "试试重复付款。", order: "您的订单", side: "服务端实现", protected: "由 onlyonce 保护",
    naive: "手写方案：先查询，后写入", key: "幂等键 Idempotency-Key", pay: "付款（连点两次试试）", burst: "同时发送 50 个请求",
    cut: "切断响应，然后重试", change: "同一个键，不同金额", new: "新订单，新的键", sent: "已发送请求", charged: "本订单扣款次数",
    replayed: "重放（字节完全相同）", refused: "被拒绝或被切断", answers: "客户端收到的响应", nothing: "暂无。",
    ledger: "银行实际发生的扣款", "order-column": "订单", amount: "金额", "side-column": "服务", time: "时间",
    kill: "记录不会丢失：用 kill -9 结束演示程序，重新启动后用同一个键再次付款。",
    ran: "已扣款", same: "重放", cutoff: "响应被切断", one: "无论发送多少次，只扣款一次。",
    many: (n) => `同一订单扣款 ${n} 次：这就是没有 onlyonce 的结果。`, none: "尚未扣款。", behind: "onlyonce", hand: "手写",
    lost: "客户端没有看到响应，服务端仍继续执行",
  },
};
