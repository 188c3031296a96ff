//! The laws are strong enough: every flawed model breaks at least the law that is about its flaw.

use std::sync::Arc;

use onlyonce_testkit::laws::{full_laws, inspect_laws, store_laws};
use onlyonce_testkit::{Flaw, ModelHarness};
use tokio::task::JoinSet;

/// The laws that a model with this flaw breaks, each tried on a store of its own, all at the same time.
async fn broken_by(flaw: Flaw) -> Vec<&'static str> {
    let mut trials = JoinSet::new();
    for law in store_laws() {
        let harness = Arc::new(ModelHarness::flawed(flaw));
        trials.spawn(async move {
            (law.name, tokio::spawn(async move { (law.run)(&*harness).await }).await.is_err())
        });
    }
    for law in inspect_laws() {
        let harness = Arc::new(ModelHarness::flawed(flaw));
        trials.spawn(async move {
            (law.name, tokio::spawn(async move { (law.run)(&*harness).await }).await.is_err())
        });
    }
    for law in full_laws() {
        let harness = Arc::new(ModelHarness::flawed(flaw));
        trials.spawn(async move {
            (law.name, tokio::spawn(async move { (law.run)(&*harness).await }).await.is_err())
        });
    }
    let mut broken: Vec<_> =
        trials.join_all().await.into_iter().filter_map(|(law, broken)| broken.then_some(law)).collect();
    broken.sort_unstable();
    broken
}

macro_rules! mutants {
    ($($test:ident: $flaw:ident breaks $($law:ident)+,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let broken = broken_by(Flaw::$flaw).await;
            println!("MUTANT {:?} breaks {}", Flaw::$flaw, broken.join(", "));
            $(assert!(broken.contains(&stringify!($law)), "it breaks {broken:?} only");)+
        })+

        #[test]
        fn every_flaw_has_its_test() {
            let tested = [$(Flaw::$flaw),+];
            assert_eq!(Flaw::ALL, tested, "in the order in which they are declared");
        }

        /// A law that no flaw breaks might be one that nothing can break.
        #[test]
        fn every_law_is_broken_by_a_flaw() {
            let broken = [$($(stringify!($law)),+),+];
            let laws = store_laws().iter().map(|law| law.name).chain(inspect_laws().iter().map(|law| law.name));
            let laws = laws.chain(full_laws().iter().map(|law| law.name));
            let unbroken: Vec<_> = laws.filter(|law| !broken.contains(law)).collect();
            assert_eq!(unbroken, [""; 0]);
        }
    };
}

mutants! {
    two_acquirers: TwoAcquirers breaks exactly_one_of_many_begins_is_acquired
        exactly_one_of_many_takeovers_is_acquired,
    a_renewal_in_two_steps: RenewInTwoSteps breaks a_renewal_never_undoes_a_settlement,
    a_settlement_in_two_steps: SettleInTwoSteps breaks a_late_settlement_and_a_takeover_have_one_winner
        one_of_two_verdicts_at_once_is_kept,
    forgetting_in_two_steps: ForgetInTwoSteps breaks a_forget_never_deletes_what_was_begun_meanwhile,
    a_sweep_in_two_steps: SweepInTwoSteps breaks a_sweep_never_deletes_what_was_begun_meanwhile,
    an_answer_that_is_written_later: AnswerWrittenLater breaks a_dropped_call_happened_or_did_not,
    a_refused_repeat: RepeatedBeginRefused breaks a_repeated_begin_is_recognised,
    a_repeat_that_forgets_the_takeover: RepeatedBeginForgetsOver breaks a_repeated_begin_reports_the_same_takeover,
    a_repeat_that_does_not_renew: RepeatedBeginDoesNotRenew breaks a_repeated_begin_renews_the_lease,
    a_late_begin_that_reacquires: LateBeginReacquires breaks an_owner_that_released_cannot_reacquire
        an_owner_that_lapsed_cannot_reacquire,
    a_completed_attempt_that_reacquires: CompletedReacquired breaks an_owner_that_completed_cannot_reacquire,
    a_first_attempt_over_something: FirstOverReleased breaks an_absent_record_is_acquired_over_nothing,
    a_refused_begin_that_writes: RefusedBeginWrites breaks a_begin_that_is_refused_changes_nothing,
    takeover_always_allowed: TakeoverAlwaysAllowed breaks a_lapsed_record_is_held_unless_takeover_is_allowed
        an_unknown_record_is_held_unless_takeover_is_allowed,
    takeover_with_another_payload: TakeoverWithAnotherPayload breaks takeover_needs_the_same_payload,
    payload_version_ignored: PayloadVersionIgnored breaks another_payload_is_shown_the_first,
    seen_fence_unchecked: SeenFenceUnchecked breaks takeover_of_a_seen_fence_loses_to_a_later_one,
    released_is_held: ReleasedIsHeld breaks a_released_record_is_begun_again,
    running_taken_over: RunningTakenOver breaks a_running_record_is_never_taken_over,
    completed_taken_over: CompletedTakenOver breaks a_completed_record_is_never_taken_over,
    fence_unchecked: FenceUnchecked breaks a_settlement_needs_owner_and_fence
        a_renewal_needs_owner_and_fence,
    owner_ignored: OwnerIgnored breaks a_settlement_needs_owner_and_fence
        a_zombie_cannot_renew
        a_zombie_cannot_settle,
    fence_demanded: FenceDemanded breaks settling_by_owner_alone_frees_a_begin_whose_reply_was_lost
        a_renewal_by_owner_alone_is_applied,
    renew_after_lapse: RenewAfterLapse breaks a_lost_lease_cannot_be_renewed,
    renew_after_settle: RenewAfterSettle breaks a_settled_attempt_cannot_be_renewed,
    absent_is_applied: AbsentIsApplied breaks what_is_absent_cannot_be_settled_renewed_or_forgotten,
    a_renewal_that_adds: RenewalAdds breaks a_renewal_counts_from_now,
    late_settlement_refused: LateSettlementRefused breaks a_holder_past_its_lease_may_still_settle_if_nobody_took_over,
    repeated_settle_refused: RepeatedSettleRefused breaks repeating_a_settlement_is_applied,
    repeated_settle_extends: RepeatedSettleExtends breaks repeating_a_settlement_does_not_keep_it_longer,
    completion_lost: CompletionLost breaks each_verdict_is_read_back,
    another_settlement_accepted: AnotherSettlementAccepted breaks another_settlement_is_lost,
    answers_as_text: AnswersAsText breaks completed_answers_come_back_byte_for_byte,
    evidence_dropped: EvidenceDropped breaks evidence_of_an_unknown_outcome_is_kept
        each_verdict_is_read_back,
    fence_falls_after_forget: FenceFallsAfterForget breaks fences_rise_over_release_takeover_expiry_and_forget
        a_forgotten_record_is_absent,
    expiry_ignored: ExpiryIgnored breaks an_expired_record_counts_as_absent
        unsettled_records_expire_after_their_retention,
    expiry_from_begin: ExpiryFromBegin breaks expiry_counts_from_completion_and_is_not_reset_by_reads,
    expiry_reset_by_read: ExpiryResetByRead breaks expiry_counts_from_completion_and_is_not_reset_by_reads
        the_spans_that_are_left_are_shown,
    expires_with_lease: ExpiresWithLease breaks unsettled_records_outlive_their_lease
        takeover_of_a_seen_fence_is_acquired,
    expires_under_lease: ExpiresUnderLease breaks a_live_lease_outlasts_retention,
    takeover_keeps_expiry: TakeoverKeepsExpiry breaks a_later_attempt_is_kept_for_its_own_retention,
    unsettled_never_expires: UnsettledNeverExpires breaks released_and_unknown_records_expire_too,
    forgets_running: ForgetsRunning breaks forget_refuses_a_running_record_and_a_stale_fence,
    forgets_any_fence: ForgetsAnyFence breaks forget_refuses_a_running_record_and_a_stale_fence,
    sweep_ignores_limit: SweepIgnoresLimit breaks sweep_removes_only_expired_records_and_respects_its_limit,
    sweep_stops_early: SweepStopsEarly breaks a_sweep_that_finds_fewer_than_it_may_leaves_none,
    sweeps_lapsed: SweepsLapsed breaks sweep_removes_only_expired_records_and_respects_its_limit,
    sweeps_under_lease: SweepsUnderLease breaks a_sweep_leaves_a_live_lease_however_short_its_retention,
    lost_wake_up: LostWakeUp breaks a_waiter_is_woken_by_settle
        a_waiter_is_woken_by_forget
        a_waiter_is_woken_by_takeover,
    waits_without_looking: WaitsWithoutLooking breaks changed_returns_at_once_if_already_changed,
    waits_forever: WaitsForever breaks changed_respects_its_timeout,
    never_ready: NeverReady breaks a_store_that_takes_calls_is_ready,
    full_takes_new: FullTakesNew breaks a_full_store_refuses_a_new_record,
    full_refuses_settlements: FullRefusesSettlements breaks
        a_full_store_still_takes_the_settlement_of_a_record_that_it_has,
    attempts_not_counted: AttemptsNotCounted breaks attempts_are_counted,
    age_reset_by_takeover: AgeResetByTakeover breaks age_counts_from_the_first_attempt,
    lapse_from_begin: LapseFromBegin breaks a_lapse_counts_from_the_end_of_the_attempt,
    label_of_first_attempt: LabelOfFirstAttempt breaks labels_and_payloads_are_kept,
    short_ids: ShortIds breaks records_do_not_touch_each_other,
    lists_expired: ListsExpired breaks expired_records_are_not_listed,
    list_ignores_state: ListIgnoresState breaks a_listing_by_filter_shows_what_matches,
    list_ignores_ids: ListIgnoresIds breaks a_range_of_ids_shows_what_is_in_it,
    unresolved_includes_running: UnresolvedIncludesRunning breaks what_needs_a_person_is_counted,
    pages_overlap: PagesOverlap breaks pages_show_every_record_once,
    cursor_is_offset: CursorIsOffset breaks paging_survives_records_that_come_and_go,
    any_cursor_taken: AnyCursorTaken breaks a_foreign_cursor_is_refused,
    counts_expired: CountsExpired breaks counts_say_how_many_records_are_in_each_state,
    lapsed_youngest_first: LapsedYoungestFirst breaks lapsed_records_come_oldest_first,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_flaw_breaks_no_law() {
    use onlyonce_testkit::Harness;
    for law in store_laws() {
        (law.run)(&ModelHarness::open().await).await;
    }
    for law in inspect_laws() {
        (law.run)(&ModelHarness::open().await).await;
    }
    for law in full_laws() {
        (law.run)(&ModelHarness::open().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "fences fell")]
async fn fences_that_fall_after_a_deletion_are_found_under_contention_too() {
    let flawed = ModelHarness::flawed(Flaw::FenceFallsAfterForget);
    onlyonce_testkit::laws::races::fences_rise_however_many_begin_and_forget(&flawed).await;
}
