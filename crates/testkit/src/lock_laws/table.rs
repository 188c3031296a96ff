//! The list of laws, once.

/// Makes one test of every law of `LockBackend` (of `onlyonce_core::lock`), named as the law, for this
/// [`LockHarness`](crate::LockHarness). Put two harnesses of one file into two modules.
///
/// With `fenced` after the harness, also of the laws of a lock that is in one place, and so can have fences.
#[macro_export]
macro_rules! lock_conformance {
    ($harness:ty) => {
        $crate::__lock_tests! { $harness;
            taking::no_two_of_many_acquires_are_granted,
            taking::a_held_lock_is_taken_and_says_for_how_long,
            taking::a_repeated_acquire_is_granted_and_renews,
            taking::a_lock_that_ran_out_is_free,
            taking::locks_of_different_names_do_not_touch_each_other,
            holding::a_renewal_counts_from_now,
            holding::only_its_owner_renews_a_lock,
            holding::a_lock_that_ran_out_is_not_renewed,
            holding::a_lock_that_was_taken_over_is_not_renewed,
            holding::a_released_lock_is_free,
            holding::a_repeated_release_finds_nothing,
            holding::a_release_of_what_ran_out_says_so,
            holding::a_release_by_a_former_owner_touches_nothing,
            waiting::a_waiter_is_woken_by_a_release,
            waiting::a_free_lock_is_not_waited_for,
            waiting::a_wait_ends_when_the_lock_runs_out,
            waiting::a_wait_ends_after_its_time,
        }
    };
    ($harness:ty, fenced) => {
        $crate::lock_conformance!($harness);
        $crate::__lock_tests! { $harness;
            taking::exactly_one_of_many_acquires_is_granted,
            fences::fences_rise_over_release_and_expiry,
            fences::a_repeated_acquire_has_no_lower_fence,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __lock_tests {
    ($harness:ty; $($module:ident::$law:ident,)+) => {
        $(#[test]
        fn $law() {
            $crate::run_lock_law::<$harness>(async |harness| $crate::lock_laws::$module::$law(harness).await);
        })+
    };
}
