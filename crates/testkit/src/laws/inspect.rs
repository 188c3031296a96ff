//! Looking through a store. Records are told from foreign ones by a route that only this law uses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onlyonce_core::{Claim, Cursor, Filter, Inspect, Listed, RecordId, Settled, StateKind, Verdict};

use super::case::{Case, completed, ok, random_hash, unknown};
use crate::harness::InspectHarness;

const PAGE: u32 = 7;
const MOST_PAGES: u32 = 10_000;

fn own_route() -> Arc<str> {
    format!("GET /law/{}", random_hash()).into()
}

fn of_route(route: &Arc<str>) -> Filter {
    Filter { route: Some(Arc::clone(route)), ..Filter::default() }
}

fn case<'a>(harness: &'a dyn InspectHarness, route: &Arc<str>) -> Case<'a> {
    let mut case = Case::new(harness);
    case.label.route = Arc::clone(route);
    case
}

/// One record in each state, lapsed both by time and by word.
async fn one_of_each<'a>(harness: &'a dyn InspectHarness, route: &Arc<str>) -> [(Case<'a>, StateKind); 5] {
    let cases = [(); 5].map(|()| case(harness, route));
    cases[0].run().await;
    cases[1].acquire(&Claim { lease: cases[1].unit(), ..cases[1].claim() }).await;
    cases[2].settled(completed("a")).await;
    cases[3].settled(Verdict::Released).await;
    cases[4].settled(unknown("?")).await;
    cases[0].pass(2).await;
    let [running, silent, done, released, unsure] = cases;
    [
        (running, StateKind::Running),
        (silent, StateKind::Lapsed),
        (done, StateKind::Completed),
        (released, StateKind::Released),
        (unsure, StateKind::Lapsed),
    ]
}

/// All records that match, page by page, in the order of the store.
async fn list_all(store: &dyn Inspect, filter: &Filter) -> Vec<Listed> {
    let (mut listed, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        cursor = next_page(store, filter, cursor, &mut listed).await;
        pages += 1;
        assert!(pages < MOST_PAGES, "there is no end to it");
        if cursor.is_none() {
            return listed;
        }
    }
}

async fn next_page(
    store: &dyn Inspect,
    filter: &Filter,
    after: Option<Cursor>,
    listed: &mut Vec<Listed>,
) -> Option<Cursor> {
    let page = ok(store.list(filter, after.as_ref(), PAGE).await);
    assert!(page.records.len() <= PAGE as usize, "a page of {} records", page.records.len());
    listed.extend(page.records);
    page.next
}

fn ids(listed: &[Listed]) -> Vec<RecordId> {
    listed.iter().map(|listed| listed.id).collect()
}

/// Route, state, key digest and scope digest narrow a listing, alone and together; it shows what `get` shows.
pub async fn a_listing_by_filter_shows_what_matches(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let cases = one_of_each(harness, &route).await;
    for kind in [StateKind::Running, StateKind::Lapsed, StateKind::Completed, StateKind::Released] {
        let filter = Filter { state: Some(kind), ..of_route(&route) };
        let found: BTreeSet<_> = ids(&list_all(&*store, &filter).await).into_iter().collect();
        let expected = cases.iter().filter(|(_, state)| *state == kind).map(|(case, _)| case.id).collect();
        assert_eq!(found, expected, "{kind:?}");
    }
    for (case, _) in &cases {
        let (key, scope) = (Some(case.label.key), Some(case.label.scope));
        for filter in [
            Filter { key, ..Filter::default() },
            Filter { scope, ..Filter::default() },
            Filter { key, scope, ..of_route(&route) },
        ] {
            let listed = list_all(&*store, &filter).await;
            assert_eq!(ids(&listed), [case.id], "{filter:?}");
            let (shown, read) = (&listed[0].snapshot, case.snapshot().await);
            assert_eq!((shown.fence, shown.state.kind(), shown.attempts), (read.fence, read.state.kind(), 1));
            assert_eq!((&shown.label, shown.fingerprint), (&read.label, read.fingerprint));
        }
        let nobody = Filter { key, scope: Some(random_hash()), ..Filter::default() };
        assert_eq!(list_all(&*store, &nobody).await, []);
    }
}

/// A range of ids narrows a listing, both ends included, also where another filter or a cursor does.
pub async fn a_range_of_ids_shows_what_is_in_it(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let mut all = Vec::new();
    for n in 0..20 {
        let case = case(harness, &route);
        case.settled(if n % 2 == 0 { completed("a") } else { unknown("?") }).await;
        all.push(case.id);
    }
    all.sort_unstable();
    for (first, last) in [(0, 19), (3, 16), (7, 7)] {
        let ids_between = Some(all[first]..=all[last]);
        let filter = Filter { ids: ids_between.clone(), ..of_route(&route) };
        assert_eq!(ids(&list_all(&*store, &filter).await), all[first..=last], "{first} to {last}");
        let lapsed = Filter { state: Some(StateKind::Lapsed), ..filter };
        let listed = list_all(&*store, &lapsed).await;
        assert!(listed.iter().all(|listed| all[first..=last].contains(&listed.id)), "{listed:?}");
    }
}

/// Page by page every record is shown exactly once, in an order that stays the same.
pub async fn pages_show_every_record_once(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let mut expected = Vec::new();
    for _ in 0..50 {
        let case = case(harness, &route);
        case.settled(completed("a")).await;
        expected.push(case.id);
    }
    let first = ids(&list_all(&*store, &of_route(&route)).await);
    assert_eq!(ids(&list_all(&*store, &of_route(&route)).await), first, "the order changed");
    let mut sorted = first;
    sorted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
}

/// Records that are there all the time are shown exactly once, while others come and go between the pages.
pub async fn paging_survives_records_that_come_and_go(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let (mut staying, mut going) = (BTreeSet::new(), BTreeMap::new());
    for n in 0..60 {
        let case = case(harness, &route);
        let fence = case.settled(completed("a")).await.fence;
        if n % 3 == 0 {
            going.insert(case.id, (case, fence));
        } else {
            staying.insert(case.id);
        }
    }
    // First some that were shown go, then new ones come. Not both at once: a cursor that counts records would be off by
    // one in either direction, and might come out right.
    let mut listed = Vec::new();
    let mut cursor = next_page(&*store, &of_route(&route), None, &mut listed).await;
    for _ in 0..MOST_PAGES {
        if cursor.is_none() {
            break;
        }
        for id in ids(&listed) {
            if let Some((gone, fence)) = going.remove(&id) {
                assert_eq!(gone.forget(fence).await, Settled::Applied);
            }
        }
        cursor = next_page(&*store, &of_route(&route), cursor, &mut listed).await;
    }
    each_is_shown_once(&staying, &listed);

    listed.clear();
    let mut cursor = next_page(&*store, &of_route(&route), None, &mut listed).await;
    for _ in 0..MOST_PAGES {
        if cursor.is_none() {
            break;
        }
        case(harness, &route).settled(completed("new")).await;
        cursor = next_page(&*store, &of_route(&route), cursor, &mut listed).await;
    }
    each_is_shown_once(&staying, &listed);
}

fn each_is_shown_once(staying: &BTreeSet<RecordId>, listed: &[Listed]) {
    let shown: BTreeSet<_> = ids(listed).into_iter().collect();
    assert_eq!(shown.len(), listed.len(), "a record was shown twice");
    assert!(staying.is_subset(&shown), "a record that stayed was skipped");
}

/// A cursor that the store did not make is refused, and does not start from the beginning.
pub async fn a_foreign_cursor_is_refused(harness: &dyn InspectHarness) {
    let foreign = Cursor("'; not a cursor of any store".into());
    assert!(harness.inspect().list(&Filter::default(), Some(&foreign), PAGE).await.is_err());
}

/// An expired record is absent here too, before anybody sweeps.
pub async fn expired_records_are_not_listed(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let (kept, expired) = (case(harness, &route), case(harness, &route));
    kept.settled(unknown("?")).await;
    let attempt = expired.run().await;
    assert_eq!(expired.settle_for(&attempt.id(), unknown("?"), expired.unit()).await, Settled::Applied);
    expired.pass(2).await;
    assert_eq!(ids(&list_all(&*store, &of_route(&route)).await), [kept.id]);
    let lapsed = ids(&ok(store.lapsed(u32::MAX).await));
    assert!(lapsed.contains(&kept.id) && !lapsed.contains(&expired.id));
}

/// The counts rise by what was begun, each in its state; expired records do not count.
pub async fn counts_say_how_many_records_are_in_each_state(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let before = ok(store.count().await);
    one_of_each(harness, &route).await;
    let expired = case(harness, &route);
    let attempt = expired.run().await;
    assert_eq!(expired.settle_for(&attempt.id(), completed("a"), expired.unit()).await, Settled::Applied);
    expired.pass(2).await;
    let after = ok(store.count().await);
    let more: BTreeMap<_, _> =
        after.iter().map(|(kind, count)| (*kind, count - before.get(kind).copied().unwrap_or(0))).collect();
    let expected = [
        (StateKind::Running, 1),
        (StateKind::Lapsed, 2),
        (StateKind::Released, 1),
        (StateKind::Completed, 1),
    ];
    assert_eq!(more, expected.into());
}

/// Lapsed records, by time or by word, are given with the one that began first at the head, and no more than asked for.
pub async fn lapsed_records_come_oldest_first(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let mut expected = Vec::new();
    for n in 0..6 {
        let case = case(harness, &route);
        if n % 2 == 0 {
            case.lapse().await;
        } else {
            case.settled(unknown("?")).await;
            case.pass(1).await;
        }
        expected.push(case.id);
    }
    case(harness, &route).settled(completed("a")).await;
    let lapsed = ok(store.lapsed(u32::MAX).await);
    let own: Vec<_> = lapsed.iter().filter(|listed| listed.snapshot.label.route == route).cloned().collect();
    assert_eq!(ids(&own), expected);
    assert!(lapsed.iter().all(|listed| listed.snapshot.state.kind() == StateKind::Lapsed));
    assert_eq!(ok(store.lapsed(2).await).len(), 2);
}

/// What needs a person is counted up to a limit, and by whether a word was left; it is known since when.
pub async fn what_needs_a_person_is_counted(harness: &dyn InspectHarness) {
    let (store, route) = (harness.inspect(), own_route());
    let before = ok(store.unresolved(u32::MAX).await);
    let cases = one_of_each(harness, &route).await;
    let after = ok(store.unresolved(u32::MAX).await);
    assert_eq!((after.count - before.count, after.silent - before.silent), (2, 1));
    let oldest = after.oldest.expect("there are some");
    for (case, kind) in cases {
        assert!(kind != StateKind::Lapsed || case.snapshot().await.age <= oldest + case.unit() * 2);
    }
    assert_eq!(ok(store.unresolved(1).await).count, 1);
}
