//! The laws of locks are strong enough: a backend with a flaw breaks the law that is about it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::lock::{Acquired, LockBackend, LockName, Release, Renewed};
use onlyonce_core::{Clock, Fence, ManualClock, Owner, StoreError};
use onlyonce_testkit::LockHarness;
use onlyonce_testkit::lock_laws::{fences, holding, taking, waiting};
use parking_lot::Mutex;
use tokio::sync::watch;

/// A mistake that a backend of locks could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// Looks and writes in two steps.
    LooksThenWrites,
    /// Grants a free lock to nobody who has rivals.
    RivalsLockEachOtherOut,
    SaysNotForHowLong,
    /// Takes a repeat by the owner for a rival.
    OwnerIsARival,
    /// Grants a repeat and leaves the time as it was.
    RepeatDoesNotRenew,
    NeverRunsOut,
    /// Knows names by their first letters.
    ShortNames,
    /// A renewal adds to the time that is left.
    RenewalAdds,
    AnybodyRenews,
    RenewsWhatRanOut,
    /// Says that it is free now, and keeps it.
    ReleaseKeepsIt,
    /// Says "released" whatever it found.
    AlwaysReleased,
    AnybodyReleases,
    WakesNobody,
    /// A wait does not look before it sleeps.
    WaitsWithoutLooking,
    /// A wait ends by a release only.
    WaitsForever,
    FencesStartAgain,
    /// A repeat has a fence from before.
    RepeatHasALowerFence,
}

struct Held {
    owner: Owner,
    until: Duration,
}

/// A backend as plain as can be, with one flaw or none.
struct Flawed {
    flaw: Option<Flaw>,
    clock: ManualClock,
    held: Mutex<HashMap<String, Held>>,
    fences: Mutex<u64>,
    releases: watch::Sender<()>,
}

impl std::fmt::Debug for Flawed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Flawed({:?})", self.flaw)
    }
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.clock.now().as_micros())
    }

    fn place(&self, name: &LockName) -> String {
        let letters = if self.has(Flaw::ShortNames) { 16 } else { usize::MAX };
        name.as_str().chars().take(letters).collect()
    }

    fn is_held(&self, held: &Held) -> bool {
        self.has(Flaw::NeverRunsOut) || self.now() < held.until
    }

    /// Who has it, and for how long.
    fn holder(&self, name: &LockName) -> Option<(Owner, Duration)> {
        let held = self.held.lock();
        let held = held.get(&self.place(name)).filter(|held| self.is_held(held))?;
        Some((held.owner, held.until.saturating_sub(self.now())))
    }

    fn write(&self, name: &LockName, owner: Owner, until: Duration) {
        self.held.lock().insert(self.place(name), Held { owner, until });
    }
}

#[async_trait::async_trait]
impl LockBackend for Flawed {
    type Proof = Fence;

    async fn acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Acquired<Fence>, StoreError> {
        let found = self.holder(name);
        if self.has(Flaw::LooksThenWrites) {
            tokio::task::yield_now().await;
        }
        let repeated = matches!(found, Some((holder, _)) if holder == *owner);
        match found {
            Some((_, left)) if !repeated || self.has(Flaw::OwnerIsARival) => {
                if self.has(Flaw::RivalsLockEachOtherOut) {
                    self.held.lock().clear();
                }
                let free_in = (!self.has(Flaw::SaysNotForHowLong)).then_some(left);
                return Ok(Acquired::Taken { free_in });
            }
            Some((_, left)) if self.has(Flaw::RepeatDoesNotRenew) => {
                self.write(name, *owner, self.now() + left);
            }
            _ => self.write(name, *owner, self.now() + ttl),
        }
        if self.has(Flaw::RivalsLockEachOtherOut) {
            tokio::task::yield_now().await;
            if self.holder(name).is_none_or(|(holder, _)| holder != *owner) {
                return Ok(Acquired::Taken { free_in: Some(ttl) });
            }
        }
        let mut fences = self.fences.lock();
        *fences += 1;
        if repeated && self.has(Flaw::RepeatHasALowerFence) {
            return Ok(Acquired::Granted(Fence(0)));
        }
        Ok(Acquired::Granted(Fence(*fences)))
    }

    async fn renew(&self, name: &LockName, owner: &Owner, ttl: Duration) -> Result<Renewed, StoreError> {
        if self.has(Flaw::RenewsWhatRanOut) && self.holder(name).is_none() {
            self.write(name, *owner, self.now() + ttl);
        }
        match self.holder(name) {
            Some((holder, left)) if holder == *owner || self.has(Flaw::AnybodyRenews) => {
                let left = if self.has(Flaw::RenewalAdds) { left } else { Duration::ZERO };
                self.write(name, holder, self.now() + left + ttl);
                Ok(Renewed::Renewed)
            }
            _ => Ok(Renewed::Lost),
        }
    }

    async fn release(&self, name: &LockName, owner: &Owner) -> Result<Release, StoreError> {
        let released = match self.holder(name) {
            None => Release::AlreadyExpired,
            Some((holder, _)) if holder != *owner && !self.has(Flaw::AnybodyReleases) => Release::TakenOver,
            Some(_) => {
                if !self.has(Flaw::ReleaseKeepsIt) {
                    self.held.lock().remove(&self.place(name));
                }
                if self.has(Flaw::FencesStartAgain) {
                    *self.fences.lock() = 0;
                }
                Release::Released
            }
        };
        if !self.has(Flaw::WakesNobody) {
            self.releases.send_replace(());
        }
        Ok(if self.has(Flaw::AlwaysReleased) { Release::Released } else { released })
    }

    async fn freed(&self, name: &LockName, timeout: Duration) {
        let give_up = self.now() + timeout;
        let mut releases = self.releases.subscribe();
        let mut look = !self.has(Flaw::WaitsWithoutLooking);
        while !look || self.holder(name).is_some() {
            let left = self.holder(name).map_or(timeout, |(_, left)| left);
            let over = give_up.saturating_sub(self.now()).min(left);
            if over.is_zero() && !self.has(Flaw::WaitsForever) {
                return;
            }
            let end = async {
                if self.has(Flaw::WaitsForever) {
                    std::future::pending::<()>().await;
                }
                self.clock.sleep(over).await;
            };
            tokio::select! {
                _ = releases.changed() => look = true,
                () = end => {}
            }
        }
    }
}

struct Harness(Arc<Flawed>);

impl Harness {
    fn with(flaw: Option<Flaw>) -> Self {
        Self(Arc::new(Flawed {
            flaw,
            clock: ManualClock::new(),
            held: Mutex::default(),
            fences: Mutex::new(0),
            releases: watch::Sender::new(()),
        }))
    }
}

#[async_trait::async_trait]
impl LockHarness for Harness {
    type Proof = Fence;

    async fn open() -> Self {
        Self::with(None)
    }

    fn backend(&self) -> Arc<dyn LockBackend<Proof = Fence>> {
        self.0.clone()
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn pass(&self, span: Duration) {
        self.0.clock.advance(span);
    }
}

/// Time-outs of the laws are over at once where nothing else is left to do: the runtime's time is paused.
macro_rules! mutants {
    ($($test:ident: $flaw:ident breaks $module:ident::$law:ident,)+) => {
        $(#[tokio::test(start_paused = true)]
        async fn $test() {
            $module::$law(&Harness::with(None)).await;
            let flawed = Harness::with(Some(Flaw::$flaw));
            let broken = tokio::spawn(async move { $module::$law(&flawed).await }).await;
            assert!(broken.is_err_and(|error| error.is_panic()), "the law let it pass");
        })+

        /// A law that no flaw breaks might be one that nothing can break.
        #[test]
        fn every_law_is_broken_by_a_flaw() {
            let broken = [$(concat!(stringify!($module), "::", stringify!($law))),+];
            let listed = include_str!("../src/lock_laws/table.rs");
            let laws = listed.lines().map(str::trim).filter(|line| line.contains("::") && line.ends_with(','));
            let laws: Vec<_> = laws.map(|law| law.trim_end_matches(',')).collect();
            assert!(laws.len() >= 20, "{laws:?}");
            let unbroken: Vec<_> = laws.iter().filter(|law| !broken.contains(law)).collect();
            assert!(unbroken.is_empty(), "{unbroken:?}");
        }
    };
}

mutants! {
    looks_then_writes: LooksThenWrites breaks taking::exactly_one_of_many_acquires_is_granted,
    looks_then_writes_in_many_places: LooksThenWrites breaks taking::no_two_of_many_acquires_are_granted,
    rivals_lock_each_other_out: RivalsLockEachOtherOut breaks taking::exactly_one_of_many_acquires_is_granted,
    says_not_for_how_long: SaysNotForHowLong breaks taking::a_held_lock_is_taken_and_says_for_how_long,
    owner_is_a_rival: OwnerIsARival breaks taking::a_repeated_acquire_is_granted_and_renews,
    repeat_does_not_renew: RepeatDoesNotRenew breaks taking::a_repeated_acquire_is_granted_and_renews,
    never_runs_out: NeverRunsOut breaks taking::a_lock_that_ran_out_is_free,
    never_runs_out_for_its_releaser: NeverRunsOut breaks holding::a_release_of_what_ran_out_says_so,
    short_names: ShortNames breaks taking::locks_of_different_names_do_not_touch_each_other,
    renewal_adds: RenewalAdds breaks holding::a_renewal_counts_from_now,
    anybody_renews: AnybodyRenews breaks holding::only_its_owner_renews_a_lock,
    a_former_owner_renews: AnybodyRenews breaks holding::a_lock_that_was_taken_over_is_not_renewed,
    renews_what_ran_out: RenewsWhatRanOut breaks holding::a_lock_that_ran_out_is_not_renewed,
    release_keeps_it: ReleaseKeepsIt breaks holding::a_released_lock_is_free,
    always_released: AlwaysReleased breaks holding::a_repeated_release_finds_nothing,
    anybody_releases: AnybodyReleases breaks holding::a_release_by_a_former_owner_touches_nothing,
    wakes_nobody: WakesNobody breaks waiting::a_waiter_is_woken_by_a_release,
    waits_without_looking: WaitsWithoutLooking breaks waiting::a_free_lock_is_not_waited_for,
    waits_past_the_end: WaitsForever breaks waiting::a_wait_ends_when_the_lock_runs_out,
    waits_for_ever: WaitsForever breaks waiting::a_wait_ends_after_its_time,
    fences_start_again: FencesStartAgain breaks fences::fences_rise_over_release_and_expiry,
    repeat_has_a_lower_fence: RepeatHasALowerFence breaks fences::a_repeated_acquire_has_no_lower_fence,
}
