use futures_util::FutureExt;

use super::*;

#[test]
fn the_greediest_gives_way_to_smaller_ones_and_never_to_greedier_ones() {
    let budget = MemoryBudget::new(400);
    let (greedy, modest) = (budget.account(), budget.account());
    let held = greedy.take(290).unwrap();
    let (asked, spared) = (greedy.eviction(), modest.eviction());
    assert!(greedy.take(20).is_none(), "a quarter is a reserve, and nobody is greedier");
    let _small = modest.take(20).unwrap();
    assert!(asked.is_asked() && !spared.is_asked());
    // What was asked for counts as free: nobody is asked twice for it.
    let more = modest.take(80).unwrap();
    assert!(!spared.is_asked());
    assert!(modest.take(100).is_none(), "but it is still there, and the limit holds");
    drop(held);
    let _more = (more, modest.take(120).unwrap());
    assert_eq!(budget.used(), 220);
    assert!(greedy.take(70).is_some(), "what was given up is there again");
    assert!(greedy.take(100).is_some() && spared.is_asked(), "now the other is the greedier one");
}

#[test]
fn what_was_given_up_while_it_was_asked_for_is_not_as_good_as_free() {
    let budget = MemoryBudget::new(400);
    let (first, other) = (budget.account(), budget.account());
    let pledge = |account: &Account| {
        account.0.holdings.pledged.fetch_add(100, ORDER);
        budget.0.register.lock().pledged += 100;
    };
    pledge(&first);
    let _all = other.take(300).unwrap();
    assert!(other.take(50).is_none(), "nobody has anything to give");
    assert_eq!(budget.0.register.lock().pledged, 0);
    pledge(&first);
    drop(first);
    assert_eq!(budget.0.register.lock().pledged, 0);
}

#[test]
fn a_request_notices_what_was_asked_before_it_looked() {
    let budget = MemoryBudget::new(400);
    let (greedy, modest) = (budget.account(), budget.account());
    let mark = greedy.mark();
    let _held = greedy.take(290).unwrap();
    let _small = modest.take(20).unwrap();
    assert!(greedy.eviction_since(mark).is_asked());
    assert!(!greedy.eviction().is_asked(), "the next one was not asked");
}

#[test]
fn an_answer_that_waits_for_its_turn_takes_what_others_give_back() {
    let budget = MemoryBudget::new(400);
    let (calls, first, second) = (budget.account(), budget.account(), budget.account());
    let mut running = calls.take(290).unwrap();
    running.keep();
    let (mut slow, mut quick) = (first.nothing(), second.nothing());
    slow.keep();
    quick.keep();
    slow.grow_for_answer(200).now_or_never().expect("the first may go beyond the limit");
    let mut waits = Box::pin(quick.grow_for_answer(100));
    assert!(waits.as_mut().now_or_never().is_none(), "one at a time");
    drop(running);
    assert!(waits.as_mut().now_or_never().is_some(), "there is room, though the other is not done");
    drop(waits);
    assert_eq!(budget.used(), 300);
    drop((slow, quick));
    assert_eq!((budget.used(), budget.0.waiting.load(ORDER)), (0, 0));
}

#[test]
fn what_is_kept_is_not_asked_for() {
    let budget = MemoryBudget::new(400);
    let (busy, other) = (budget.account(), budget.account());
    let mut running = busy.take(290).unwrap();
    running.keep();
    assert!(other.take(20).is_none());
    drop(running);
    assert!(other.take(20).is_some());
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn answers_have_a_reserve_and_then_take_turns() {
    let budget = MemoryBudget::new(400);
    let account = budget.account();
    let mut request = account.take(300).unwrap();
    request.keep();
    let place = account.place(&http::Method::POST, "/");
    let (mut first, mut second) =
        (BodyMemory::of_answer(&account, place), BodyMemory::of_answer(&account, place));
    first.pay(50).await.unwrap();
    // Beyond the limit: one of them goes on, the other waits for its turn.
    first.pay(50).await.unwrap();
    let mut waiting = Box::pin(second.pay(50));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(first);
    waiting.await.unwrap();
    drop((second, request));
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_crowd_of_answers_leaves_a_quarter_to_those_who_want_to_begin() {
    let budget = MemoryBudget::new(400 << 10);
    let (crowd, modest) = (budget.account(), budget.account());
    let mut answers = [crowd.nothing(), crowd.nothing(), crowd.nothing()];
    answers.iter_mut().for_each(Reservation::keep);
    let [first, second, third] = &mut answers;
    first.grow_for_answer(300 << 10).now_or_never().expect("there is room");
    second.grow_for_answer(200 << 10).now_or_never().expect("one may go beyond the limit");
    assert!(third.grow_for_answer(50 << 10).now_or_never().is_none(), "the last quarter is not for answers");
    let begins = modest.take(100 << 10).expect("however much the answers take");
    assert!(modest.take(1).is_none(), "but no more than that");
    drop(answers);
    drop(begins);
    assert_eq!((budget.used(), budget.0.answers.load(ORDER)), (0, 0));
}

#[test]
fn a_small_answer_does_not_wait_behind_large_ones() {
    let budget = MemoryBudget::new(1 << 20);
    let calls = budget.account();
    let [mut full, mut large, mut small] = [(); 3].map(|()| {
        let mut reserved = calls.nothing();
        reserved.keep();
        reserved
    });
    full.grow_for_answer(700_000).now_or_never().expect("there is room");
    let _turn = std::sync::Arc::clone(&budget.0.overdraft).try_acquire_owned().unwrap();
    let mut large = Box::pin(large.grow_for_answer(100_000));
    assert!(large.as_mut().now_or_never().is_none());
    assert!(small.grow_for_answer(1_000).now_or_never().is_some());
    drop(full);
    assert!(large.as_mut().now_or_never().is_some());
}

#[tokio::test]
async fn an_answer_of_known_length_holds_nothing_while_it_waits_for_room() {
    let budget = MemoryBudget::new(1 << 20);
    let calls = budget.account();
    let place = calls.place(&http::Method::POST, "/");
    let [mut first, mut second, mut third] = [(); 3].map(|()| BodyMemory::of_answer(&calls, place));
    first.pay_ahead(390_000).await;
    second.pay_ahead(390_000).await;
    assert_eq!(budget.used(), 1_560_000, "within the limit, and one answer beyond it");
    assert!(third.pay_ahead(100_000).now_or_never().is_none());
    assert_eq!(budget.used(), 1_560_000);
    first.pay(390_000).now_or_never().expect("it has its room").unwrap();
    assert_eq!(budget.used(), 1_560_000, "nothing is paid twice");
    drop((first, second));
    third.pay_ahead(100_000).now_or_never().expect("now there is room");
}

const ANSWER: usize = 50 << 10;

/// What calls of a layer do: each begins if it may, runs, and leaves an answer to a reader that does not read.
fn begin(account: &Account) -> Option<Reservation> {
    let mut request = account.take(1000)?;
    request.keep();
    Some(request)
}

#[test]
fn answers_that_wait_for_readers_of_a_layer_keep_new_calls_from_beginning() {
    let budget = MemoryBudget::new(400 << 10);
    let account = budget.account();
    let place = account.place(&http::Method::POST, "/x");
    let (mut unread, mut most) = (Vec::new(), 0);
    // The calls of the first ten have begun before there is an answer.
    let mut running: Vec<_> = (0..10).map_while(|_| begin(&account)).collect();
    assert_eq!(running.len(), 10);
    let mut begun = 10;
    for _ in 0..1000 {
        running.extend(begin(&account).inspect(|_| begun += 1));
        let Some(request) = running.pop() else { break };
        let mut memory = BodyMemory::of_answer(&account, place);
        memory.pay_ahead(ANSWER).now_or_never().expect("its turn");
        most = most.max(budget.used());
        let mut reserved = memory.into_reservation();
        if reserved.may_wait() {
            reserved.for_reader();
            unread.push(reserved);
        }
        drop(request);
    }
    assert!(most <= budget.limit() + 2 * ANSWER, "{most} of {}", budget.limit());
    assert!(budget.used() <= budget.limit() && begun < 20, "{begun} began, {} used", budget.used());
    unread.clear();
    assert_eq!((budget.used(), budget.0.answers.load(ORDER)), (0, 0));
}

#[test]
fn answers_that_wait_for_readers_of_connections_give_way_to_those_that_come() {
    let budget = MemoryBudget::new(400 << 10);
    let busy = budget.account_of_connection();
    let mut kept = busy.nothing();
    kept.keep();
    kept.grow_for_answer(300 << 10).now_or_never().unwrap();
    let running: Vec<_> = (0..50)
        .map(|_| {
            let account = budget.account_of_connection();
            let request = begin(&account).unwrap();
            (account, request)
        })
        .collect();
    let (mut unread, mut most) = (Vec::new(), 0);
    for (account, request) in running {
        let eviction = account.eviction();
        let mut memory = BodyMemory::of_answer(&account, account.place(&http::Method::POST, "/x"));
        {
            let mut turn = Box::pin(memory.pay_ahead(ANSWER));
            if turn.as_mut().now_or_never().is_none() {
                unread.retain(|(_, eviction, _): &(Account, Eviction, Reservation)| !eviction.is_asked());
                turn.now_or_never().expect("others gave way");
            }
        }
        most = most.max(budget.used());
        let mut reserved = memory.into_reservation();
        assert!(reserved.may_wait());
        reserved.for_reader();
        drop(request);
        unread.push((account, eviction, reserved));
    }
    assert!(most <= budget.limit() + 2 * ANSWER, "{most} of {}", budget.limit());
}

#[test]
fn while_many_answers_wait_no_call_begins_whose_last_answer_was_large() {
    let budget = MemoryBudget::new(400 << 10);
    let calls = budget.account();
    let [huge, tiny] = ["/huge", "/tiny"].map(|path| calls.place(&http::Method::POST, path));
    assert_ne!(huge, tiny);
    let answer = |place, bytes| {
        let mut memory = BodyMemory::of_answer(&calls, place);
        memory.pay(bytes).now_or_never().expect("there is room").unwrap();
        drop(memory.into_reservation());
    };
    answer(huge, 100 << 10);
    answer(tiny, 100);
    let mut held = [(); 18].map(|()| {
        let mut reserved = calls.nothing();
        reserved.keep();
        reserved
    });
    let mut waiting = Vec::new();
    for held in &mut held {
        assert!(calls.may_begin(huge), "{} wait", waiting.len());
        let mut grows = Box::pin(held.grow_for_answer(290 << 10));
        if grows.as_mut().now_or_never().is_none() {
            waiting.push(grows);
        }
    }
    assert_eq!((waiting.len(), calls.may_begin(huge), calls.may_begin(tiny)), (16, false, true));
    waiting.pop();
    assert!(calls.may_begin(huge));
}
