use onlyonce_core::StateMachine;
use onlyonce_macros::StateMachine;
use onlyonce_sql::guard::{
    Change, Dedup, GuardErrorKind, StateChange, Transition, dedup, transition, versioned,
};

use super::{Shop, WRITERS, count, operation};
use crate::db::{Db, KEEPS};

#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
#[machine(crate = onlyonce_core)]
enum Order {
    #[to(Paid, Cancelled)]
    Placed,
    #[to(Done, Refunding)]
    Paid,
    #[to(Paid)]
    Refunding,
    Done,
    Cancelled,
}

/// As in the articles: whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, StateMachine)]
#[machine(crate = onlyonce_core)]
enum Step {
    #[stored(1)]
    #[to(Second)]
    First,
    #[stored(2)]
    #[to(Third)]
    Second,
    #[stored(3)]
    Third,
}

fn to<'a>(state: Order) -> StateChange<'a, Db, Order> {
    transition("orders", "status", state).key("id", 1_i64)
}

async fn placed() -> Shop {
    let shop = Shop::with(WRITERS).await;
    shop.sql("INSERT INTO orders (id, code) VALUES (1, 'A-1')").await;
    shop
}

#[tokio::test]
async fn done_duplicate_illegal_and_missing_are_told_apart() {
    let shop = placed().await;
    let mut tx = shop.begin().await;
    let illegal = Transition::Illegal { from: Order::Placed, to: Order::Done };
    assert_eq!(to(Order::Done).run(&mut tx).await.unwrap(), illegal);
    assert_eq!(to(Order::Paid).set("amount", 7_i64).run(&mut tx).await.unwrap(), Transition::Applied);
    assert_eq!(to(Order::Paid).run(&mut tx).await.unwrap(), Transition::AlreadyInTarget);
    let illegal = Transition::Illegal { from: Order::Paid, to: Order::Placed };
    assert_eq!(to(Order::Placed).run(&mut tx).await.unwrap(), illegal);
    let missing = transition("orders", "status", Order::Paid).key("id", 9_i64);
    assert_eq!(missing.run(&mut tx).await.unwrap(), Transition::NotFound);
    tx.commit().await.unwrap();
    assert_eq!(shop.number("SELECT amount FROM orders WHERE status = 'paid'").await, 7);
}

#[tokio::test]
async fn states_may_be_whole_numbers() {
    let shop = placed().await;
    let mut tx = shop.begin().await;
    let to = |step| transition::<Db, _>("orders", "step", step).key("id", 1_i64);
    assert_eq!(to(Step::Second).run(&mut tx).await.unwrap(), Transition::Applied);
    assert_eq!(to(Step::Second).run(&mut tx).await.unwrap(), Transition::AlreadyInTarget);
    let illegal = Transition::Illegal { from: Step::Second, to: Step::First };
    assert_eq!(to(Step::First).run(&mut tx).await.unwrap(), illegal);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn an_operation_id_tells_a_late_duplicate_where_the_states_go_in_a_circle() {
    assert!(Order::has_cycle() && !Step::has_cycle());
    let shop = placed().await;
    let mut tx = shop.begin().await;
    let pay = || to(Order::Paid).operation(operation("pay"));
    assert_eq!(pay().run(&mut tx).await.unwrap(), Transition::Applied);
    assert_eq!(to(Order::Refunding).run(&mut tx).await.unwrap(), Transition::Applied);
    // Legal by the machine; but it is the old one.
    assert_eq!(pay().run(&mut tx).await.unwrap(), Transition::Duplicate(operation("pay")));
    // An operation that did nothing is not recorded.
    let done = || to(Order::Done).operation(operation("done"));
    assert!(matches!(done().run(&mut tx).await.unwrap(), Transition::Illegal { .. }));
    assert_eq!(to(Order::Paid).run(&mut tx).await.unwrap(), Transition::Applied);
    assert_eq!(done().run(&mut tx).await.unwrap(), Transition::Applied);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn of_64_who_move_the_same_row_one_does() {
    let shop = placed().await;
    let outcomes = shop.race(async |_, tx| to(Order::Paid).run(tx).await).await;
    assert_eq!(count(&outcomes, |outcome| *outcome == Transition::Applied), 1);
    assert_eq!(count(&outcomes, |outcome| *outcome == Transition::AlreadyInTarget), 63);
}

#[tokio::test]
async fn of_64_who_pay_or_cancel_one_wins() {
    let shop = placed().await;
    let outcomes = shop
        .race(async |writer, tx| {
            let target = if writer % 2 == 0 { Order::Paid } else { Order::Cancelled };
            to(target).operation(operation(writer)).run(tx).await
        })
        .await;
    assert_eq!(count(&outcomes, |outcome| *outcome == Transition::Applied), 1);
    assert_eq!(count(&outcomes, |outcome| *outcome == Transition::AlreadyInTarget), 31);
    assert_eq!(count(&outcomes, |outcome| matches!(outcome, Transition::Illegal { .. })), 32);
}

#[tokio::test]
async fn a_state_that_the_machine_does_not_have_is_an_error_that_names_it() {
    let shop = placed().await;
    shop.sql("UPDATE orders SET status = 'lost'").await;
    let error = to(Order::Paid).run(&mut shop.begin().await).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Data);
    assert!(error.to_string().contains("`lost`, which Order does not have"), "{error}");
}

/// Outside of transactions others come between the look and the move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_told_that_it_moved_the_row_did_also_outside_of_a_transaction() {
    let shop = placed().await;
    shop.sql("UPDATE orders SET status = 'paid'").await;
    let mut tasks = Vec::new();
    for n in 0..8 {
        let pool = shop.pool.clone();
        let state = if n % 2 == 0 { Order::Refunding } else { Order::Paid };
        tasks.push(tokio::spawn(async move {
            let mut connection = pool.acquire().await.unwrap();
            let mut applied = 0_i64;
            for _ in 0..150 {
                match to(state).run(&mut connection).await {
                    Ok(moved) => applied += i64::from(moved == Transition::Applied),
                    Err(error) => {
                        assert!(error.is_retryable() || error.kind() == GuardErrorKind::Data, "{error}")
                    }
                }
            }
            (state, applied)
        }));
    }
    let (mut out, mut back) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            (Order::Refunding, applied) => out += applied,
            (_, applied) => back += applied,
        }
    }
    let away = shop.number("SELECT COUNT(*) FROM orders WHERE status = 'refunding'").await;
    assert!(out > 0, "nothing was shown");
    assert_eq!(out - back, away, "{out} moves away and {back} back");
}

/// A rule of the database may keep a row as it is without an error.
#[tokio::test]
async fn a_row_that_a_trigger_keeps_is_not_told_as_moved() {
    let Some(keep) = KEEPS else { return };
    let shop = placed().await;
    shop.sql("INSERT INTO stock VALUES (1, 10, 2)").await;
    for table in ["orders", "stock"] {
        shop.sql(&keep.replace("{table}", table)).await;
    }
    let mut tx = shop.begin().await;
    let error = to(Order::Paid).operation(operation("o")).run(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Data, "{error}");
    let row = versioned("stock", "version").key("id", 1_i64).seen(1).operation(operation("v"));
    let error = row.update(&mut tx, Change::new().add("amount", -1_i64)).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Data, "{error}");
    for key in ["o", "v"] {
        assert_eq!(
            dedup(operation(key)).run(&mut tx).await.unwrap(),
            Dedup::First,
            "nothing was done under it"
        );
    }
}
