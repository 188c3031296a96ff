//! The list of laws, once: the tests of a store and the lists for mutants are both made from it.

/// Hands all laws of a store to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_laws {
    ([$($each:tt)+] $($context:tt)*) => {
        $($each)+! { ($($context)*)
            begin::an_absent_record_is_acquired_over_nothing,
            begin::exactly_one_of_many_begins_is_acquired,
            begin::exactly_one_of_many_takeovers_is_acquired,
            begin::a_running_record_is_never_taken_over,
            begin::a_completed_record_is_never_taken_over,
            begin::a_begin_that_is_refused_changes_nothing,
            begin::another_payload_is_shown_the_first,
            repeat::a_repeated_begin_is_recognised,
            repeat::a_repeated_begin_reports_the_same_takeover,
            repeat::a_repeated_begin_renews_the_lease,
            repeat::an_owner_that_released_cannot_reacquire,
            repeat::an_owner_that_completed_cannot_reacquire,
            repeat::an_owner_that_lapsed_cannot_reacquire,
            takeover::a_released_record_is_begun_again,
            takeover::a_lapsed_record_is_held_unless_takeover_is_allowed,
            takeover::an_unknown_record_is_held_unless_takeover_is_allowed,
            takeover::takeover_needs_the_same_payload,
            takeover::takeover_of_a_seen_fence_is_acquired,
            takeover::takeover_of_a_seen_fence_loses_to_a_later_one,
            renew::a_renewal_counts_from_now,
            renew::a_renewal_needs_owner_and_fence,
            renew::a_renewal_by_owner_alone_is_applied,
            renew::a_lost_lease_cannot_be_renewed,
            renew::a_settled_attempt_cannot_be_renewed,
            renew::a_zombie_cannot_renew,
            settle::each_verdict_is_read_back,
            settle::a_settlement_needs_owner_and_fence,
            settle::a_zombie_cannot_settle,
            settle::a_holder_past_its_lease_may_still_settle_if_nobody_took_over,
            settle::repeating_a_settlement_is_applied,
            settle::another_settlement_is_lost,
            settle::settling_by_owner_alone_frees_a_begin_whose_reply_was_lost,
            settle::what_is_absent_cannot_be_settled_renewed_or_forgotten,
            answers::completed_answers_come_back_byte_for_byte,
            answers::evidence_of_an_unknown_outcome_is_kept,
            fences::fences_rise_over_release_takeover_expiry_and_forget,
            expiry::expiry_counts_from_completion_and_is_not_reset_by_reads,
            expiry::repeating_a_settlement_does_not_keep_it_longer,
            expiry::released_and_unknown_records_expire_too,
            expiry::an_expired_record_counts_as_absent,
            expiry::a_live_lease_outlasts_retention,
            expiry::unsettled_records_outlive_their_lease,
            expiry::unsettled_records_expire_after_their_retention,
            expiry::a_later_attempt_is_kept_for_its_own_retention,
            forget::forget_refuses_a_running_record_and_a_stale_fence,
            forget::a_forgotten_record_is_absent,
            sweep::sweep_removes_only_expired_records_and_respects_its_limit,
            sweep::a_sweep_that_finds_fewer_than_it_may_leaves_none,
            sweep::a_sweep_leaves_a_live_lease_however_short_its_retention,
            races::a_late_settlement_and_a_takeover_have_one_winner,
            races::one_of_two_verdicts_at_once_is_kept,
            races::a_renewal_never_undoes_a_settlement,
            races::a_forget_never_deletes_what_was_begun_meanwhile,
            races::a_sweep_never_deletes_what_was_begun_meanwhile,
            dropped::a_dropped_call_happened_or_did_not,
            ready::a_store_that_takes_calls_is_ready,
            waiting::a_waiter_is_woken_by_settle,
            waiting::a_waiter_is_woken_by_takeover,
            waiting::a_waiter_is_woken_by_forget,
            waiting::changed_returns_at_once_if_already_changed,
            waiting::changed_respects_its_timeout,
            facts::labels_and_payloads_are_kept,
            facts::attempts_are_counted,
            facts::age_counts_from_the_first_attempt,
            facts::a_lapse_counts_from_the_end_of_the_attempt,
            facts::the_spans_that_are_left_are_shown,
            facts::records_do_not_touch_each_other,
        }
    };
}

/// Hands all laws of a store that can be looked through to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __inspect_laws {
    ([$($each:tt)+] $($context:tt)*) => {
        $($each)+! { ($($context)*)
            inspect::a_listing_by_filter_shows_what_matches,
            inspect::a_range_of_ids_shows_what_is_in_it,
            inspect::what_needs_a_person_is_counted,
            inspect::pages_show_every_record_once,
            inspect::paging_survives_records_that_come_and_go,
            inspect::a_foreign_cursor_is_refused,
            inspect::expired_records_are_not_listed,
            inspect::counts_say_how_many_records_are_in_each_state,
            inspect::lapsed_records_come_oldest_first,
        }
    };
}

/// Hands all laws of a store that is full to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __full_laws {
    ([$($each:tt)+] $($context:tt)*) => {
        $($each)+! { ($($context)*)
            full::a_full_store_refuses_a_new_record,
            full::a_full_store_still_takes_the_settlement_of_a_record_that_it_has,
        }
    };
}

/// Makes one test of every law of [`Store`](onlyonce_core::Store), named as the law, for this [`Harness`](crate::Harness).
///
/// Put two harnesses of one file into two modules.
#[macro_export]
macro_rules! conformance {
    ($harness:ty) => {
        $crate::__store_laws! { [$crate::__store_tests] $harness }
    };
}

/// Makes a test of [`fences_rise_however_many_begin_and_forget`](crate::laws::races::fences_rise_however_many_begin_and_forget), for
/// this [`Harness`](crate::Harness). Not all stores keep it: one that takes the time of a fence before it has its turn, and remembers
/// nothing of what was deleted, may be a few milliseconds off. Say so if yours is one.
#[macro_export]
macro_rules! conformance_contended_fences {
    ($harness:ty) => {
        $crate::__store_tests! { ($harness) races::fences_rise_however_many_begin_and_forget, }
    };
}

/// Makes one test of every law of [`Inspect`](onlyonce_core::Inspect), for this
/// [`InspectHarness`](crate::InspectHarness).
#[macro_export]
macro_rules! conformance_inspect {
    ($harness:ty) => {
        $crate::__inspect_laws! { [$crate::__inspect_tests] $harness }
    };
}

/// Makes one test of every law of a store that is full, for this [`FullHarness`](crate::FullHarness).
#[macro_export]
macro_rules! conformance_full {
    ($harness:ty) => {
        $crate::__full_laws! { [$crate::__full_tests] $harness }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __full_tests {
    (($harness:ty) $($module:ident::$law:ident,)+) => {
        $(#[test]
        fn $law() {
            $crate::run_full_law::<$harness>(|harness| Box::pin($crate::laws::$module::$law(harness)));
        })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    (($harness:ty) $($module:ident::$law:ident,)+) => {
        $(#[test]
        fn $law() {
            $crate::run_law::<$harness>(|harness| Box::pin($crate::laws::$module::$law(harness)));
        })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __inspect_tests {
    (($harness:ty) $($module:ident::$law:ident,)+) => {
        $(#[test]
        fn $law() {
            $crate::run_inspect_law::<$harness>(|harness| Box::pin($crate::laws::$module::$law(harness)));
        })+
    };
}
