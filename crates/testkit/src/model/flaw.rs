//! Mistakes that a store could make.

macro_rules! flaws {
    ($($(#[$doc:meta])+ $flaw:ident,)+) => {
        /// One mistake of a [`ModelStore`](super::ModelStore). A set of laws that misses one of them is too weak.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Flaw { $($(#[$doc])+ $flaw,)+ }

        impl Flaw {
            /// Every mistake there is.
            pub const ALL: &'static [Self] = &[$(Self::$flaw),+];
        }
    };
}

flaws! {
    /// A begin looks and writes in two steps.
    TwoAcquirers,
    /// A renewal looks and writes in two steps.
    RenewInTwoSteps,
    /// A settlement looks and writes in two steps.
    SettleInTwoSteps,
    /// Forgetting looks and deletes in two steps.
    ForgetInTwoSteps,
    /// A sweep looks and deletes in two steps.
    SweepInTwoSteps,
    /// A settlement writes the verdict first, and then the answer.
    AnswerWrittenLater,
    /// A repeated begin of a running attempt is refused as if it were somebody else's.
    RepeatedBeginRefused,
    /// A repeated begin says that it was begun over nothing.
    RepeatedBeginForgetsOver,
    /// A repeated begin leaves the lease as it is.
    RepeatedBeginDoesNotRenew,
    /// A late copy of a begin starts an attempt again that was settled or has lapsed.
    LateBeginReacquires,
    /// A late copy of a begin starts an attempt again that was completed.
    CompletedReacquired,
    /// A first attempt says that it was begun over a released one.
    FirstOverReleased,
    /// A begin that is refused writes its label and its lease all the same.
    RefusedBeginWrites,
    /// A lapsed record is taken over by whoever comes.
    TakeoverAlwaysAllowed,
    /// A record is taken over with another payload.
    TakeoverWithAnotherPayload,
    /// The version of a payload digest is not compared.
    PayloadVersionIgnored,
    /// A takeover of a seen fence takes any.
    SeenFenceUnchecked,
    /// A released record needs leave to be begun again.
    ReleasedIsHeld,
    /// A record that runs is taken over where lapsed ones may be.
    RunningTakenOver,
    /// A completed record is taken over where lapsed ones may be.
    CompletedTakenOver,
    /// The owner is compared, the fence is not.
    FenceUnchecked,
    /// The fence is compared, the owner is not.
    OwnerIgnored,
    /// Who does not know its fence is refused.
    FenceDemanded,
    /// A lease that is over can be renewed.
    RenewAfterLapse,
    /// An attempt that was settled can be renewed.
    RenewAfterSettle,
    /// Whatever is said about a record that is not there is applied.
    AbsentIsApplied,
    /// A renewal counts from the end of the lease and not from now.
    RenewalAdds,
    /// A holder whose lease is over can't settle.
    LateSettlementRefused,
    /// The same settlement again is refused.
    RepeatedSettleRefused,
    /// The same settlement again is kept longer.
    RepeatedSettleExtends,
    /// A completion is acknowledged and not kept.
    CompletionLost,
    /// A second, different settlement overwrites the first.
    AnotherSettlementAccepted,
    /// Answers are stored as text.
    AnswersAsText,
    /// What was seen of an unknown outcome is not kept.
    EvidenceDropped,
    /// Fences start again after a deletion.
    FenceFallsAfterForget,
    /// Expired records are still there until they are swept.
    ExpiryIgnored,
    /// Retention counts from the begin.
    ExpiryFromBegin,
    /// Reading a record keeps it longer.
    ExpiryResetByRead,
    /// A record is gone with the lease of its attempt.
    ExpiresWithLease,
    /// A record expires while its attempt runs.
    ExpiresUnderLease,
    /// A later attempt is kept for as long as the record was to be kept before it.
    TakeoverKeepsExpiry,
    /// Released and unknown records are kept for ever.
    UnsettledNeverExpires,
    /// A record that runs can be forgotten.
    ForgetsRunning,
    /// Forgetting does not compare the fence.
    ForgetsAnyFence,
    /// A sweep takes all that it finds.
    SweepIgnoresLimit,
    /// A sweep stops before its limit, though there is more.
    SweepStopsEarly,
    /// A sweep takes lapsed records for expired ones.
    SweepsLapsed,
    /// A sweep goes by the retention alone, also where an attempt still runs.
    SweepsUnderLease,
    /// Nobody is woken by a change.
    LostWakeUp,
    /// A wait does not look before it sleeps.
    WaitsWithoutLooking,
    /// A wait has no end.
    WaitsForever,
    /// It says that it takes no calls, and takes them.
    NeverReady,
    /// It begins new records without room for them.
    FullTakesNew,
    /// Without room it takes no settlement either.
    FullRefusesSettlements,
    /// Every attempt is the first.
    AttemptsNotCounted,
    /// A takeover makes the record young again.
    AgeResetByTakeover,
    /// A lapse counts from the begin.
    LapseFromBegin,
    /// The label of a later attempt is not kept.
    LabelOfFirstAttempt,
    /// Ids are cut to their first half.
    ShortIds,
    /// A listing shows expired records.
    ListsExpired,
    /// A listing does not compare the state.
    ListIgnoresState,
    /// A listing does not compare the id.
    ListIgnoresIds,
    /// What needs a person is counted with what runs.
    UnresolvedIncludesRunning,
    /// A page starts at the cursor and not after it.
    PagesOverlap,
    /// A cursor is a number of records to skip.
    CursorIsOffset,
    /// A cursor that can't be read starts from the beginning.
    AnyCursorTaken,
    /// Counts include expired records.
    CountsExpired,
    /// Lapsed records come youngest first.
    LapsedYoungestFirst,
}
