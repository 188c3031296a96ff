//! What problems are called and what they tell people, in each language.

use http::StatusCode;
use onlyonce_core::Class;

use super::{Doubt, ProblemKind};
use crate::language::Language;

pub(super) struct Text {
    pub(super) title: &'static str,
    pub(super) detail: &'static str,
}

/// What a caller in doubt can do, after the sentence that says so.
pub(super) const fn remedy(doubt: Doubt, language: Language) -> &'static str {
    match (doubt, language) {
        (Doubt::Unrecorded, Language::English) => {
            " Check the state of your operation before you send it again."
        }
        (Doubt::Unrecorded, Language::Chinese) => "请先核实业务状态，再重新发送。",
        (Doubt::Hold, Language::English) => {
            " It is not tried again, and a retry is told so. Check the state of your operation, or ask the operator to resolve the record."
        }
        (Doubt::Hold, Language::Chinese) => {
            "系统不会再次执行，重试会得到同样的说明。请核实业务状态，或联系运维处理该记录。"
        }
        (Doubt::Ask(_), Language::English) => {
            " Repeat the request with the same key after the time in Retry-After: it is then found out what became of it."
        }
        (Doubt::Ask(_), Language::Chinese) => {
            "请等待 Retry-After 指定的时间后，使用同一个键重试，届时会查明其结果。"
        }
        (Doubt::Rerun, Language::English) => " Repeat the request with the same key: it will run again.",
        (Doubt::Rerun, Language::Chinese) => "请使用同一个键重试，该请求会再次执行。",
    }
}

/// What is told where the store refuses for good, and a retry would only meet the same.
pub(super) const fn refused_by_the_store(language: Language) -> &'static str {
    match language {
        Language::English => {
            "The service or its store has to be put right first, so a retry will not help: its operator finds the reason in the log. Without a record a retry could be done twice, so nothing was kept."
        }
        Language::Chinese => {
            "需要先修复服务或其存储，重试不会有帮助：运维可在日志中找到原因。没有记录就无法避免重复执行，因此本次未保留任何结果。"
        }
    }
}

impl ProblemKind {
    /// Every problem.
    pub const ALL: [Self; 32] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::TokenMissing,
        Self::TokenRefused,
        Self::TokenExpired,
        Self::ScopeMissing,
        Self::ScopeDenied,
        Self::BodyInvalid,
        Self::QueryInvalid,
        Self::RequestAmbiguous,
        Self::OutcomeNotFound,
        Self::RequestTimeout,
        Self::InProgress,
        Self::Duplicate,
        Self::OutOfOrder,
        Self::OutcomeUnknown,
        Self::ResponseNotRetained,
        Self::RequestTooLarge,
        Self::HeadTooLarge,
        Self::PayloadMismatch,
        Self::HandlerFailed,
        Self::RolledBack,
        Self::StoreUnavailable,
        Self::RecordUnreadable,
        Self::Overloaded,
        Self::Draining,
        Self::UpstreamUnreachable,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::NotFound,
        Self::MethodRefused,
        Self::TargetTooLong,
    ];

    /// The last part of the problem's `type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// The status that it is answered with.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.row().0
    }

    pub(super) const fn text(self, language: Language) -> Text {
        let (_, _, english, chinese) = self.row();
        let (title, detail) = match language {
            Language::English => english,
            Language::Chinese => chinese,
        };
        Text { title, detail }
    }

    /// Whether it says that nobody knows.
    pub(super) const fn leaves_doubt(self) -> bool {
        matches!(
            self,
            Self::OutcomeUnknown | Self::HandlerFailed | Self::UpstreamFailed | Self::UpstreamTimeout
        )
    }

    /// What a layer or gateway in front must make of it, where its status says something else, or not enough: "come back later" is no
    /// answer that could be kept, and what nobody knows here nobody knows there.
    pub(super) const fn outcome(self) -> Option<(&'static str, Class)> {
        match self {
            Self::InProgress
            | Self::RolledBack
            | Self::StoreUnavailable
            | Self::Overloaded
            | Self::Draining
            | Self::UpstreamUnreachable => Some(("release", Class::Release)),
            Self::RecordUnreadable => Some(("unknown", Class::Unknown)),
            _ if self.leaves_doubt() => Some(("unknown", Class::Unknown)),
            _ => None,
        }
    }

    const fn row(
        self,
    ) -> (StatusCode, &'static str, (&'static str, &'static str), (&'static str, &'static str)) {
        match self {
            Self::KeyMissing => (
                StatusCode::BAD_REQUEST,
                "key-missing",
                (
                    "An idempotency key is required",
                    "Send a key that is new for every new operation and the same for every retry of it, such as a UUID. Nothing was done.",
                ),
                (
                    "缺少幂等键",
                    "请发送幂等键：每个新操作使用新的键，重试时使用同一个键，例如 UUID。本次未执行任何操作。",
                ),
            ),
            Self::KeyInvalid => (
                StatusCode::BAD_REQUEST,
                "key-invalid",
                (
                    "The idempotency key can't be used",
                    "Send one key of 1 to 255 visible ASCII characters, such as a UUID. Nothing was done.",
                ),
                (
                    "幂等键无效",
                    "请发送一个长度为 1 到 255 的可见 ASCII 字符组成的键，例如 UUID。本次未执行任何操作。",
                ),
            ),
            Self::TokenMissing => (
                StatusCode::BAD_REQUEST,
                "token-missing",
                (
                    "A one-time token is needed",
                    "Ask for a token first, then send it along in the header, the form field or the query. Nothing was done.",
                ),
                (
                    "缺少一次性令牌",
                    "请先获取令牌，再通过请求头、表单字段或查询参数提交。本次未执行任何操作。",
                ),
            ),
            Self::TokenRefused => (
                StatusCode::FORBIDDEN,
                "token-refused",
                (
                    "The token is not good for this",
                    "It is not known, or was made for somebody else or something else. Ask for a new one. Nothing was done.",
                ),
                ("令牌无效", "该令牌未知，或属于其他用户或其他操作。请重新获取令牌。本次未执行任何操作。"),
            ),
            Self::TokenExpired => (
                StatusCode::GONE,
                "token-expired",
                (
                    "The form has expired",
                    "It was open for too long, and was not submitted before. Load it again and submit it then. Nothing was done.",
                ),
                ("表单已过期", "页面打开时间过长，且此前未提交。请重新加载后再提交。本次未执行任何操作。"),
            ),
            Self::ScopeMissing => (
                StatusCode::BAD_REQUEST,
                "scope-missing",
                (
                    "The caller is not known",
                    "A request with an idempotency key must say on whose behalf it is made, exactly once. Nothing was done.",
                ),
                ("无法识别调用方", "携带幂等键的请求必须且只能说明一次代表谁发起。本次未执行任何操作。"),
            ),
            Self::ScopeDenied => (
                StatusCode::UNAUTHORIZED,
                "scope-denied",
                (
                    "The credentials do not hold",
                    "Log in again and repeat the request with the same key. Nothing was done.",
                ),
                ("凭证无效", "请重新登录后使用同一个键重试。本次未执行任何操作。"),
            ),
            Self::BodyInvalid => (
                StatusCode::BAD_REQUEST,
                "body-invalid",
                (
                    "The request body can't be used",
                    "Correct the body and send all of it, with the same key if it has one. With a key nothing was done; without one a part may have reached the service: check before you send it again.",
                ),
                (
                    "请求体无效",
                    "请修正请求体并完整发送，若带有幂等键则使用同一个键。若带有幂等键，本次未执行任何操作；若没有，部分内容可能已到达服务，请先核实再重新发送。",
                ),
            ),
            Self::QueryInvalid => (
                StatusCode::BAD_REQUEST,
                "query-invalid",
                (
                    "The query is incomplete or wrong",
                    "An outcome or a token is asked for by `method` and `path` of the call, an outcome also by its key in the header; ids by `count`.",
                ),
                (
                    "查询参数缺失或有误",
                    "查询结果或领取令牌时，请以查询参数 method 和 path 指明对应的调用，查询结果还需在请求头中发送幂等键；领取编号时使用 count。",
                ),
            ),
            Self::RequestAmbiguous => (
                StatusCode::BAD_REQUEST,
                "request-ambiguous",
                (
                    "The request can be read in more than one way",
                    "Servers on its way could disagree about what it is, so it was refused. Nothing was done.",
                ),
                ("请求存在歧义", "途中的服务器可能对该请求有不同的理解，因此予以拒绝。本次未执行任何操作。"),
            ),
            Self::OutcomeNotFound => (
                StatusCode::NOT_FOUND,
                "outcome-not-found",
                (
                    "No such call is known",
                    "No call with this key, method and path is known for this caller. It may be sent with the same key.",
                ),
                (
                    "未找到该调用",
                    "对当前调用方而言，没有使用该键、方法和路径的调用记录，可以使用同一个键发送。",
                ),
            ),
            Self::RequestTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "request-timeout",
                (
                    "The request body did not come in time",
                    "Send the whole request in less time. With a key nothing was done, and the same key is right for it; without one a part may have reached the service: check before you send it again.",
                ),
                (
                    "接收请求体超时",
                    "请在时限内发送完整请求。若带有幂等键，本次未执行任何操作，请使用同一个键；若没有，部分内容可能已到达服务，请先核实再重新发送。",
                ),
            ),
            Self::InProgress => (
                StatusCode::CONFLICT,
                "in-progress",
                (
                    "The same request is still being processed",
                    "Wait for the time in Retry-After and repeat the request with the same key to get its answer.",
                ),
                ("相同的请求正在处理中", "请等待 Retry-After 指定的时间后，使用同一个键重试以获取结果。"),
            ),
            Self::Duplicate => (
                StatusCode::CONFLICT,
                "duplicate",
                (
                    "The request was made before",
                    "It is not done twice, and its answer is not kept. Use a new key only for a new operation.",
                ),
                ("重复请求", "该请求已提交过，不会重复执行，也不保留其结果。只有新的操作才应使用新的键。"),
            ),
            Self::OutOfOrder => (
                StatusCode::CONFLICT,
                "out-of-order",
                (
                    "The sequence number is too low",
                    "Calls must be numbered in rising order; the highest number so far is in `last`. Use a higher one. Nothing was done.",
                ),
                (
                    "序列号过小",
                    "请求的序列号必须递增，目前最大的序列号见 last，请使用更大的序列号。本次未执行任何操作。",
                ),
            ),
            Self::OutcomeUnknown => (
                StatusCode::CONFLICT,
                "outcome-unknown",
                (
                    "Nobody knows whether the request had its effect",
                    "An earlier attempt ended without a clear result (`first_status`, if any answer was seen), so it may or may not have happened.",
                ),
                (
                    "请求结果未知",
                    "先前的一次执行没有得到明确结果（若曾收到响应，其状态见 first_status），可能已生效，也可能未生效。",
                ),
            ),
            Self::ResponseNotRetained => (
                StatusCode::CONFLICT,
                "response-not-retained",
                (
                    "The request was done, but its answer was not kept",
                    "The answer was too large, or a stream. It had the status in `original_status`, if that is known; do not send the request again, look up its result instead.",
                ),
                (
                    "请求已执行，但未保留其响应",
                    "响应过大或为流式响应，原状态码见 original_status。请勿重新提交，请直接查询其结果。",
                ),
            ),
            Self::RequestTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "request-too-large",
                (
                    "The request body is too large",
                    "Requests with an idempotency key are read into memory, up to a limit, and others may have one too. Send a smaller body. With a key, or with a length, nothing was done; otherwise a part may have reached the service.",
                ),
                (
                    "请求体过大",
                    "携带幂等键的请求体有大小上限，其他请求也可能有，请减小请求体。若带有幂等键或长度，本次未执行任何操作；否则部分内容可能已到达服务。",
                ),
            ),
            Self::PayloadMismatch => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "payload-mismatch",
                (
                    "The key was used for another request",
                    "The same key came with another payload before. Repeat a request unchanged, or use a new key for a new operation. Nothing was done.",
                ),
                (
                    "幂等键已用于其他请求",
                    "同一个键先前对应不同的请求内容。重试时请保持请求不变，新的操作请使用新的键。本次未执行任何操作。",
                ),
            ),
            Self::HandlerFailed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "handler-failed",
                ("The request failed half-way", "It may or may not have had its effect."),
                ("请求中途失败", "该请求可能已生效，也可能未生效。"),
            ),
            Self::RolledBack => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "rolled-back",
                (
                    "The request failed and was undone",
                    "All that it had done was rolled back, so nothing was done. Repeat the request with the same key.",
                ),
                ("请求失败并已回滚", "该请求所做的一切均已回滚，本次未执行任何操作。请使用同一个键重试。"),
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                (
                    "Requests can't be recorded right now",
                    "Without a record a retry could be done twice, so nothing was done. Repeat the request with the same key later.",
                ),
                (
                    "暂时无法记录请求",
                    "没有记录就无法避免重复执行，因此本次未执行任何操作。请稍后使用同一个键重试。",
                ),
            ),
            Self::RecordUnreadable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "record-unreadable",
                (
                    "The record of this request can't be read",
                    "It is damaged or was written by another version, so nothing is done on the strength of it. Ask the operator.",
                ),
                (
                    "该请求的记录无法读取",
                    "记录已损坏或由其他版本写入，因此不会据此执行任何操作。请联系运维。",
                ),
            ),
            Self::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head-too-large",
                (
                    "The request has too many headers",
                    "Send fewer, or ask the operator what is allowed. Nothing was done.",
                ),
                ("请求头过多", "请减少请求头，或向运维询问上限。本次未执行任何操作。"),
            ),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                (
                    "There is no room for the request at the moment",
                    "Too much is being read and answered at once. Nothing was done; repeat the request with the same key.",
                ),
                (
                    "服务器暂时没有足够的内存处理该请求",
                    "当前同时读取和应答的内容过多。本次未执行任何操作，请稍后使用同一个键重试。",
                ),
            ),
            Self::Draining => (
                StatusCode::SERVICE_UNAVAILABLE,
                "draining",
                (
                    "The server is about to stop",
                    "It finishes what it has begun and takes nothing new. Nothing was done; repeat the request with the same key.",
                ),
                (
                    "服务器即将停止",
                    "服务器只完成已开始的请求，不再接受新请求。本次未执行任何操作，请使用同一个键重试。",
                ),
            ),
            Self::UpstreamUnreachable => (
                StatusCode::BAD_GATEWAY,
                "upstream-unreachable",
                (
                    "The service behind the gateway was not reached",
                    "The request was never sent, so nothing was done. Repeat it with the same key.",
                ),
                ("无法连接到网关后的服务", "请求未曾发出，因此未执行任何操作。请使用同一个键重试。"),
            ),
            Self::UpstreamFailed => (
                StatusCode::BAD_GATEWAY,
                "upstream-failed",
                (
                    "The service behind the gateway did not answer",
                    "The request was sent and the connection broke before its answer was whole, so it may or may not have had its effect.",
                ),
                (
                    "网关后的服务未给出完整响应",
                    "请求已发出，但连接在收到完整响应之前中断，因此可能已生效，也可能未生效。",
                ),
            ),
            Self::UpstreamTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream-timeout",
                (
                    "The service behind the gateway did not answer in time",
                    "The request was sent, so it may or may not have its effect.",
                ),
                ("网关后的服务响应超时", "请求已发出，因此可能已生效，也可能未生效。"),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "not-found",
                ("Nothing is served here", "Check host and path of the request. Nothing was done."),
                ("此处没有任何服务", "请检查请求的主机和路径。本次未执行任何操作。"),
            ),
            Self::MethodRefused => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-refused",
                (
                    "This method is refused here",
                    "Use one of the methods that Allow names; tunnels are not opened. Nothing was done.",
                ),
                ("此处不接受该方法", "请使用 Allow 中列出的方法；网关不建立隧道。本次未执行任何操作。"),
            ),
            Self::TargetTooLong => (
                StatusCode::URI_TOO_LONG,
                "target-too-long",
                (
                    "The path is too long",
                    "With what the gateway puts before it, it can't be sent on. Nothing was done.",
                ),
                ("路径过长", "加上网关的前缀后，该路径无法转发。本次未执行任何操作。"),
            ),
        }
    }
}
