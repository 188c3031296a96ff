//! What there is, and what may happen next.

use std::time::Duration;

use onlyonce_core::machine::{self, Now, Record, Step};
use onlyonce_core::policy::{Decision, Rules, decide};
use onlyonce_core::{
    AttemptId, Begin, Claim, Fence, Fingerprint, Hash16, Label, Moment, Settled, Settlement, Takeover,
    Verdict,
};
use stateright::{Model, Property};

use crate::caller::{Caller, Does, Heard, Late, Wire};

/// In steps of the clock.
const LEASE: Duration = Duration::from_micros(2);
const LONG: Duration = Duration::from_micros(1000);

/// A place in which the protocol can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Looks whether there is a record, then writes it.
    LooksFirst,
    /// Takes over an attempt that ended without a word.
    TakesLapsed,
    /// Says that nothing happened, after the effect.
    ReleasesAfterTheEffect,
    /// Settles whoever's attempt it finds.
    SettlesForAnybody,
    /// Answers before the answer is on record.
    AnswersFirst,
    /// Forgets a record while callers may still retry.
    ForgetsSoon,
}

impl Mistake {
    pub(crate) const ALL: [Self; 6] = [
        Self::LooksFirst,
        Self::TakesLapsed,
        Self::ReleasesAfterTheEffect,
        Self::SettlesForAnybody,
        Self::AnswersFirst,
        Self::ForgetsSoon,
    ];
}

/// How much may happen.
#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    callers: u8,
    calls: u8,
    horizon: u64,
    losses: u8,
    crashes: u8,
    mistake: Option<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    now: u64,
    record: Option<Record>,
    callers: Vec<Caller>,
    /// Who had an effect, outside of the store.
    effects: Vec<[u8; 2]>,
    losses: u8,
    crashes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Tick,
    /// The client sends the call.
    Call(usize),
    /// What was sent reaches the store.
    Arrive(usize),
    /// A reply is lost, and the request sent again.
    Lose(usize),
    /// A reply is heard.
    Hear(usize),
    /// The effect happens.
    Act(usize),
    /// The handler ends well.
    Succeed(usize),
    /// The handler fails: before its effect or after it.
    Fail(usize),
    Crash(usize),
}

impl Protocol {
    pub(crate) fn right() -> Self {
        Self { callers: 2, calls: 2, horizon: 4, losses: 1, crashes: 1, mistake: None }
    }

    pub(crate) fn with(mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..Self::right() }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn claim(&self, caller: &Caller) -> Claim {
        let takeover = if self.is(Mistake::TakesLapsed) { Takeover::Allowed } else { Takeover::Never };
        let hash = Hash16::from_bytes([0; 16]);
        let label = Label { route: "pay".into(), key: hash, scope: hash };
        let fingerprint = Fingerprint::empty();
        Claim { owner: caller.owner(), fingerprint, lease: LEASE, retain_unsettled: LONG, takeover, label }
    }

    fn settlement(&self, verdict: Verdict) -> Settlement {
        let retain = if self.is(Mistake::ForgetsSoon) { Duration::from_micros(1) } else { LONG };
        Settlement { verdict, retain }
    }
}

impl World {
    fn now(&self) -> Now {
        Now { moment: Moment::from_micros(self.now), fence_floor: Fence(self.now) }
    }

    fn write<T>(&mut self, step: Step<T>) -> T {
        match step {
            Step::Write(record, answer) => {
                self.record = Some(record);
                answer
            }
            Step::Keep(answer) => answer,
        }
    }

    fn begin(&mut self, protocol: &Protocol, caller: &Caller) -> Begin {
        let step = machine::begin(self.record.as_ref(), &protocol.claim(caller), self.now());
        match step {
            // It writes when it has heard that there is none.
            Step::Write(_, begun) | Step::Keep(begun) if protocol.is(Mistake::LooksFirst) => begun,
            step => self.write(step),
        }
    }

    fn settle(&mut self, protocol: &Protocol, caller: &Caller, fence: Fence, verdict: &Verdict) -> Settled {
        let owner = match &self.record {
            Some(record) if protocol.is(Mistake::SettlesForAnybody) => record.owner,
            _ => caller.owner(),
        };
        let fence = (!protocol.is(Mistake::SettlesForAnybody)).then_some(fence);
        let how = protocol.settlement(verdict.clone());
        let step = machine::settle(
            self.record.as_ref(),
            &AttemptId { owner, fence },
            &how,
            Moment::from_micros(self.now),
        );
        self.write(step)
    }

    /// What was sent arrives.
    fn arrive(&mut self, protocol: &Protocol, caller: &mut Caller) -> Option<()> {
        match caller.does.clone() {
            Does::Begins(Wire::Request) => {
                caller.does = Does::Begins(Wire::Reply(self.begin(protocol, caller)));
            }
            Does::Settles { fence, verdict, wire: Wire::Request } => {
                let settled = self.settle(protocol, caller, fence, &verdict);
                caller.does = Does::Settles { fence, verdict, wire: Wire::Reply(settled) };
            }
            Does::Dead(Some(late)) => {
                match late {
                    Late::Begin => drop(self.begin(protocol, caller)),
                    Late::Settle { fence, verdict } => drop(self.settle(protocol, caller, fence, &verdict)),
                }
                caller.does = Does::Dead(None);
            }
            _ => return None,
        }
        Some(())
    }

    /// A reply is heard, and judged as the engine judges it.
    fn hear(&mut self, protocol: &Protocol, caller: &mut Caller) -> Option<()> {
        match caller.does.clone() {
            Does::Begins(Wire::Reply(Begin::Acquired { fence, .. })) => {
                if protocol.is(Mistake::LooksFirst) {
                    let step = machine::begin(None, &protocol.claim(caller), self.now());
                    let _ = self.write(step);
                }
                caller.does = Does::Runs { fence, acted: false };
            }
            Does::Begins(Wire::Reply(Begin::Taken(found))) => {
                match decide(&found, &Fingerprint::empty(), Rules::default()) {
                    Decision::Replay(answer) => caller.hears(Heard::Answer(answer)),
                    Decision::InProgress { .. } => caller.hears(Heard::InProgress),
                    Decision::Again => caller.does = Does::Begins(Wire::Request),
                    _ => caller.hears(Heard::Unknown),
                }
            }
            Does::Settles { verdict, wire: Wire::Reply(Settled::Applied), .. } => {
                caller.hears(match verdict {
                    Verdict::Completed(answer) => Heard::Answer(answer),
                    Verdict::Released => Heard::Failed,
                    Verdict::Unknown(_) => Heard::Unknown,
                })
            }
            Does::Settles { wire: Wire::Reply(Settled::Lost), .. } => caller.hears(Heard::Unknown),
            _ => return None,
        }
        Some(())
    }
}

/// The handler ends: how it is settled depends on whether its effect happened.
fn end(protocol: &Protocol, caller: &mut Caller, well: bool) -> Option<()> {
    let Does::Runs { fence, acted } = caller.does else { return None };
    let verdict = match (well, acted) {
        (true, true) => Verdict::Completed(caller.answer()),
        (true, false) => return None,
        (false, true) if !protocol.is(Mistake::ReleasesAfterTheEffect) => Verdict::Unknown(caller.answer()),
        (false, _) => Verdict::Released,
    };
    if let (true, Verdict::Completed(answer)) = (protocol.is(Mistake::AnswersFirst), &verdict) {
        caller.heard = Some(Heard::Answer(answer.clone()));
    }
    caller.does = Does::Settles { fence, verdict, wire: Wire::Request };
    Some(())
}

fn crash(caller: &mut Caller) -> Option<()> {
    let late = match caller.does.clone() {
        Does::Rests | Does::Dead(_) => return None,
        Does::Begins(Wire::Request) => Some(Late::Begin),
        Does::Settles { fence, verdict, wire: Wire::Request } => Some(Late::Settle { fence, verdict }),
        _ => None,
    };
    caller.does = Does::Dead(late);
    Some(())
}

impl Model for Protocol {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let callers = (0..self.callers).map(Caller::new).collect();
        let (losses, crashes) = (self.losses, self.crashes);
        vec![World { now: 0, record: None, callers, effects: Vec::new(), losses, crashes }]
    }

    fn actions(&self, _: &World, actions: &mut Vec<Event>) {
        actions.push(Event::Tick);
        for number in 0..usize::from(self.callers) {
            actions.extend([
                Event::Call(number),
                Event::Arrive(number),
                Event::Lose(number),
                Event::Hear(number),
                Event::Act(number),
                Event::Succeed(number),
                Event::Fail(number),
                Event::Crash(number),
            ]);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        let number = match event {
            Event::Tick if world.now < self.horizon => {
                next.now += 1;
                return Some(next);
            }
            Event::Tick => return None,
            Event::Call(number)
            | Event::Arrive(number)
            | Event::Lose(number)
            | Event::Hear(number)
            | Event::Act(number)
            | Event::Succeed(number)
            | Event::Fail(number)
            | Event::Crash(number) => number,
        };
        let mut caller = world.callers[number].clone();
        match event {
            Event::Call(_) if caller.may_call(self.calls) => {
                caller.calls += 1;
                caller.does = Does::Begins(Wire::Request);
            }
            Event::Arrive(_) => next.arrive(self, &mut caller)?,
            Event::Lose(_) => {
                next.losses = world.losses.checked_sub(1)?;
                match &mut caller.does {
                    Does::Begins(wire @ Wire::Reply(_)) => *wire = Wire::Request,
                    Does::Settles { wire: wire @ Wire::Reply(_), .. } => *wire = Wire::Request,
                    _ => return None,
                }
            }
            Event::Hear(_) => next.hear(self, &mut caller)?,
            Event::Act(_) => {
                let Does::Runs { fence, acted: false } = caller.does else { return None };
                caller.does = Does::Runs { fence, acted: true };
                next.effects.push(caller.tag());
            }
            Event::Succeed(_) => end(self, &mut caller, true)?,
            Event::Fail(_) => end(self, &mut caller, false)?,
            Event::Crash(_) => {
                next.crashes = world.crashes.checked_sub(1)?;
                crash(&mut caller)?;
            }
            _ => return None,
        }
        next.callers[number] = caller;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn answers(world: &World) -> impl Iterator<Item = (&Caller, &[u8])> {
            world.callers.iter().filter_map(|caller| match &caller.heard {
                Some(Heard::Answer(answer)) => Some((caller, &answer.0[..])),
                _ => None,
            })
        }
        vec![
            Property::always("at most one effect", |_, world: &World| world.effects.len() <= 1),
            Property::always("every answer is that of the effect", |_, world: &World| {
                answers(world).all(|(_, answer)| world.effects.iter().any(|tag| tag == answer))
            }),
            Property::always("an answer that was given stays", |_, world: &World| {
                let kept = world.record.as_ref().and_then(|record| match &record.settled {
                    Some((Verdict::Completed(answer), _)) => Some(&answer.0[..]),
                    _ => None,
                });
                answers(world).all(|(_, answer)| kept == Some(answer))
            }),
            Property::sometimes("a retry hears the answer of another", |_, world: &World| {
                answers(world).any(|(caller, answer)| answer[0] != caller.number)
            }),
            Property::sometimes("nobody knows, and it is said", |_, world: &World| {
                world.callers.iter().any(|caller| caller.heard == Some(Heard::Unknown))
            }),
            Property::sometimes("what failed before its effect runs again", |_, world: &World| {
                world.effects.iter().any(|tag| tag[1] == 2)
            }),
            Property::sometimes("a holder whose lease is over settles all the same", |_, world: &World| {
                world.record.as_ref().is_some_and(|record| {
                    record.settled.as_ref().is_some_and(|(_, at)| *at > record.lease_until)
                })
            }),
        ]
    }
}
