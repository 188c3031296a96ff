use onlyonce_macros::StateMachine;
use onlyonce_sql::guard::{Change, SequenceKey, dedup, sequence, transition, unique, versioned};

use super::{Shop, operation};

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
#[machine(crate = onlyonce_core)]
enum Order {
    #[to(Paid)]
    Placed,
    Paid,
}

#[tokio::test]
async fn of_a_transaction_that_is_rolled_back_nothing_remains() {
    let shop = Shop::open().await;
    shop.sql("INSERT INTO orders (id, code) VALUES (1, 'A-1')").await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 1)").await;
    for commits in [false, true] {
        let mut tx = shop.begin().await;
        unique("orders").set("id", 2_i64).set("code", "A-2").primary_key(["id"]).run(&mut tx).await.unwrap();
        dedup(operation("dedup")).run(&mut tx).await.unwrap();
        let stock = versioned("stock", "version").key("id", 1_i64).seen(1).operation(operation("take"));
        stock.update(&mut tx, Change::new().add("amount", -1_i64)).await.unwrap();
        let paid = transition("orders", "status", Order::Paid).key("id", 1_i64).operation(operation("pay"));
        paid.run(&mut tx).await.unwrap();
        for increasing in [false, true] {
            let entry = sequence(SequenceKey::new("shop-7", 1).unwrap());
            let entry = if increasing { entry.strictly_increasing() } else { entry };
            entry.run(&mut tx).await.unwrap();
        }
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let expected = i64::from(commits);
        for (sql, rows) in [
            ("SELECT count(*) FROM orders WHERE id = 2", expected),
            ("SELECT count(*) FROM orders WHERE status = 'paid'", expected),
            ("SELECT count(*) FROM stock WHERE version = 2 AND amount = 9", expected),
            ("SELECT count(*) FROM onlyonce_dedup", 4 * expected),
            ("SELECT count(*) FROM onlyonce_sequence", expected),
        ] {
            assert_eq!(shop.number(sql).await, rows, "{sql}");
        }
    }
}
