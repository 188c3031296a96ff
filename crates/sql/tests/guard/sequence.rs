use std::time::Duration;

use onlyonce_sql::guard::{GuardErrorKind, Sequence, SequenceEntry, SequenceKey, sequence};

use super::{Shop, WRITERS, count};

fn number(credential: &str, number: u64) -> SequenceEntry {
    sequence(SequenceKey::new(credential, number).unwrap())
}

#[tokio::test]
async fn each_number_of_a_credential_is_accepted_once_in_any_order() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    for (credential, given, expected) in [
        ("shop-7", 5, Sequence::Accepted),
        ("shop-7", 3, Sequence::Accepted),
        ("shop-7", 5, Sequence::Duplicate),
        ("shop-8", 5, Sequence::Accepted),
        ("shop-7", 3, Sequence::Duplicate),
    ] {
        assert_eq!(number(credential, given).run(&mut tx).await.unwrap(), expected, "{credential} {given}");
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_number_is_forgotten_after_its_time() {
    let shop = Shop::open().await;
    let mut connection = shop.pool.acquire().await.unwrap();
    let brief = || number("shop-7", 5).retain(Duration::from_millis(1));
    assert_eq!(brief().run(&mut connection).await.unwrap(), Sequence::Accepted);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(brief().run(&mut connection).await.unwrap(), Sequence::Accepted);
    let error = brief().strictly_increasing().run(&mut connection).await.unwrap_err();
    assert_eq!(error.kind(), GuardErrorKind::Input);
}

#[tokio::test]
async fn a_strictly_increasing_sequence_accepts_only_higher_numbers() {
    let shop = Shop::open().await;
    let mut tx = shop.begin().await;
    for (credential, given, expected) in [
        ("shop-7", 5, Sequence::Accepted),
        ("shop-7", 5, Sequence::Duplicate),
        ("shop-7", 4, Sequence::Behind { last: 5 }),
        ("shop-8", 4, Sequence::Accepted),
        ("shop-7", 9, Sequence::Accepted),
        ("shop-7", 6, Sequence::Behind { last: 9 }),
    ] {
        let entry = number(credential, given).strictly_increasing();
        assert_eq!(entry.run(&mut tx).await.unwrap(), expected, "{credential} {given}");
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn of_64_who_send_the_same_number_one_is_accepted() {
    let shop = Shop::with(WRITERS).await;
    for increasing in [false, true] {
        let outcomes = shop
            .race(async |_, tx| {
                let entry = number("shop-7", 1);
                if increasing { entry.strictly_increasing().run(tx).await } else { entry.run(tx).await }
            })
            .await;
        assert_eq!(count(&outcomes, |outcome| *outcome == Sequence::Accepted), 1);
        assert_eq!(count(&outcomes, |outcome| *outcome == Sequence::Duplicate), 63);
    }
}
