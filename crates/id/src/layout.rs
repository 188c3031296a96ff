//! How the bits of a Snowflake id are divided.

use onlyonce_core::InputError;

use crate::snowflake_id::SnowflakeId;

/// 2024-01-01, in milliseconds since 1970: time in ids counts from here unless a layout says otherwise.
pub const EPOCH_2024: u64 = 1_704_067_200_000;
/// Where Twitter's ids count from: 2010-11-04.
pub const EPOCH_TWITTER: u64 = 1_288_834_974_657;

/// The bits of an id, from the highest: time in milliseconds, worker, sequence, business. At most 63, so that an id is a
/// positive number in every language.
///
/// Business bits carry a meaning of yours, such as a shard or a kind; ids are unique without them. They are the lowest, so that
/// `id % shards` finds the shard.
///
/// ```
/// use onlyonce_id::Layout;
/// let layout = Layout::<41, 10, 12>::new();
/// assert_eq!((layout.workers(), layout.per_milli()), (1024, 4096));
/// let with_shard = Layout::<41, 8, 10, 4>::new();
/// let id = with_shard.compose(1_800_000_000_000, 3, 7, 9)?;
/// let parts = with_shard.decode(id);
/// assert_eq!((parts.unix_millis, parts.worker, parts.sequence, parts.business), (1_800_000_000_000, 3, 7, 9));
/// # Ok::<(), onlyonce_core::InputError>(())
/// ```
///
/// More than 63 bits do not compile:
/// ```compile_fail
/// let _ = onlyonce_id::Layout::<41, 12, 12>::new();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout<const TIME: u32, const WORKER: u32, const SEQUENCE: u32, const BUSINESS: u32 = 0> {
    epoch: u64,
}

impl Layout<41, 10, 12> {
    /// 69 years from 2024, 1,024 workers, 4,096 ids a millisecond each.
    pub const STANDARD: Self = Self { epoch: EPOCH_2024 };
    /// As Twitter's: the same bits, counted from 2010. Its worker is 5 bits of data centre and 5 of machine.
    pub const TWITTER: Self = Self { epoch: EPOCH_TWITTER };
}

impl Layout<41, 5, 7> {
    /// 53 bits, which JavaScript's numbers hold exactly: 32 workers, 128 ids a millisecond each.
    pub const JAVASCRIPT: Self = Self { epoch: EPOCH_2024 };
}

impl<const TIME: u32, const WORKER: u32, const SEQUENCE: u32, const BUSINESS: u32> Default
    for Layout<TIME, WORKER, SEQUENCE, BUSINESS>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const TIME: u32, const WORKER: u32, const SEQUENCE: u32, const BUSINESS: u32>
    Layout<TIME, WORKER, SEQUENCE, BUSINESS>
{
    const FITS: () = assert!(
        TIME >= 1 && SEQUENCE >= 1 && TIME + WORKER + SEQUENCE + BUSINESS <= 63,
        "a layout has at least one bit of time and of sequence, and at most 63 bits in all"
    );

    /// This layout, counting from 2024.
    #[must_use]
    pub const fn new() -> Self {
        Self::since(EPOCH_2024)
    }

    /// This layout, counting from another time: milliseconds since 1970.
    #[must_use]
    pub const fn since(epoch_millis: u64) -> Self {
        let () = Self::FITS;
        Self { epoch: epoch_millis }
    }

    /// Where time counts from: milliseconds since 1970.
    #[must_use]
    pub const fn epoch_millis(&self) -> u64 {
        self.epoch
    }

    /// How many workers there may be at a time.
    #[must_use]
    pub const fn workers(&self) -> u64 {
        1 << WORKER
    }

    /// How many ids a worker can make in a millisecond: the ceiling.
    #[must_use]
    pub const fn per_milli(&self) -> u64 {
        1 << SEQUENCE
    }

    /// How many business values there are.
    #[must_use]
    pub const fn businesses(&self) -> u64 {
        1 << BUSINESS
    }

    /// When the layout's time is over: milliseconds since 1970, the first that no id can carry.
    #[must_use]
    pub const fn end_millis(&self) -> u64 {
        self.epoch.saturating_add(1 << TIME)
    }

    /// The id with these parts.
    ///
    /// # Errors
    /// If a part does not fit into its bits.
    pub fn compose(
        &self,
        unix_millis: u64,
        worker: u64,
        sequence: u64,
        business: u64,
    ) -> Result<SnowflakeId, InputError> {
        let fits = |part: u64, end: u64, name: &str| {
            let wrong = || InputError::new(format!("{name} {part} does not fit: this layout ends at {end}"));
            (part < end).then_some(()).ok_or_else(wrong)
        };
        if unix_millis < self.epoch {
            return Err(InputError::new("the time is before the layout's epoch"));
        }
        fits(unix_millis, self.end_millis(), "the time")?;
        fits(worker, self.workers(), "worker")?;
        fits(sequence, self.per_milli(), "sequence")?;
        fits(business, self.businesses(), "business")?;
        Ok(Self::assemble((unix_millis - self.epoch) << SEQUENCE | sequence, worker, business))
    }

    /// The parts of an id. Bits above the layout's are not looked at.
    #[must_use]
    pub const fn decode(&self, id: SnowflakeId) -> Parts {
        let id = id.get();
        let sequence = id >> BUSINESS;
        let worker = sequence >> SEQUENCE;
        let time = (worker >> WORKER) & mask(TIME);
        Parts {
            unix_millis: self.epoch.saturating_add(time),
            worker: worker & mask(WORKER),
            sequence: sequence & mask(SEQUENCE),
            business: id & mask(BUSINESS),
        }
    }

    /// Ticks are what a generator counts: time and sequence, without the worker between them.
    pub(crate) const fn assemble(tick: u64, worker: u64, business: u64) -> SnowflakeId {
        let time = tick >> SEQUENCE;
        let sequence = tick & mask(SEQUENCE);
        SnowflakeId::new(((time << WORKER | worker) << SEQUENCE | sequence) << BUSINESS | business)
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// What an id says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// When it was made: milliseconds since 1970.
    pub unix_millis: u64,
    /// Who made it.
    pub worker: u64,
    /// Which one of that millisecond it is.
    pub sequence: u64,
    /// What the business bits say.
    pub business: u64,
}

impl Parts {
    /// The worker as Twitter divides it: 5 bits of data centre, 5 bits of machine.
    #[must_use]
    pub const fn data_centre_and_machine(&self) -> (u64, u64) {
        (self.worker >> 5, self.worker & mask(5))
    }
}
