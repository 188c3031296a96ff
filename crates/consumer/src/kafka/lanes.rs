//! The messages of each partition that are here, in their order, and how far each has come. Knows no Kafka.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A partition of a topic.
pub(super) type Place = (String, i32);

/// Which entry of which life of a lane: a partition that was taken away and came back is another lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) place: Place,
    pub(super) offset: i64,
    life: u64,
}

#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: BTreeMap<Place, Lane<T>>,
    /// How many of one partition may be out at the same time.
    window: usize,
    lives: u64,
    last: Option<Place>,
    stopped: bool,
}

#[derive(Debug)]
struct Lane<T> {
    life: u64,
    entries: VecDeque<Entry<T>>,
    paused: bool,
}

#[derive(Debug)]
struct Entry<T> {
    offset: i64,
    state: State,
    failures: u32,
    deliveries: u32,
    load: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Held,
    Out,
    Done,
}

/// A lane with so many entries is paused, and resumed when most are done.
const FULL: usize = 200;
const ROOM: usize = 50;

impl<T: Clone> Lanes<T> {
    pub(super) fn new(window: u16) -> Self {
        Self { lanes: BTreeMap::new(), window: window.into(), lives: 0, last: None, stopped: false }
    }

    /// Takes a message in, held until it is given [`back`](Self::back) if `held`. Says whether the partition should pause.
    pub(super) fn add(&mut self, place: &Place, offset: i64, held: bool, load: T) -> (Ticket, bool) {
        let lives = &mut self.lives;
        let lane = self.lanes.entry(place.clone()).or_insert_with(|| {
            *lives += 1;
            Lane { life: *lives, entries: VecDeque::new(), paused: false }
        });
        if lane.entries.back().is_some_and(|last| offset <= last.offset) {
            // It goes on from an earlier place, without a word: the topic was made again, and these are other messages; or the
            // same ones come again, all of them. Either way what is here now is no part of it.
            *lives += 1;
            (lane.life, lane.entries) = (*lives, VecDeque::new());
        }
        let state = if held { State::Held } else { State::Waiting };
        lane.entries.push_back(Entry { offset, state, failures: 0, deliveries: 0, load });
        let pause = lane.entries.len() >= FULL && !lane.paused;
        lane.paused |= pause;
        (Ticket { place: place.clone(), offset, life: lane.life }, pause)
    }

    /// The next message that may be handled, from each partition in turn; with how often it failed and was out before.
    pub(super) fn take(&mut self) -> Option<(Ticket, T, u32, u32)> {
        if self.stopped {
            return None;
        }
        let after = self.last.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let places: Vec<Place> =
            self.lanes.range((after.clone(), Bound::Unbounded)).map(|(p, _)| p.clone()).collect();
        let rest = self.lanes.keys().take(self.lanes.len() - places.len()).cloned();
        let turn: Vec<Place> = places.into_iter().chain(rest).collect();
        for place in turn {
            let Some(lane) = self.lanes.get_mut(&place) else { continue };
            // In order: nothing overtakes an entry that is held, and no more than the window is out.
            let open = lane.entries.iter_mut().filter(|entry| entry.state != State::Done).take(self.window);
            let next = open
                .take_while(|entry| entry.state != State::Held)
                .find(|entry| entry.state == State::Waiting);
            if let Some(entry) = next {
                entry.state = State::Out;
                let ticket = Ticket { place: place.clone(), offset: entry.offset, life: lane.life };
                self.last = Some(place);
                return Some((ticket, entry.load.clone(), entry.failures, entry.deliveries));
            }
        }
        None
    }

    fn entry(&mut self, ticket: &Ticket) -> Option<&mut Entry<T>> {
        let lane = self.lanes.get_mut(&ticket.place).filter(|lane| lane.life == ticket.life)?;
        lane.entries.iter_mut().find(|entry| entry.offset == ticket.offset)
    }

    /// It is done with. The offset to store if everything before it is done too, and whether the partition may go on.
    pub(super) fn done(&mut self, ticket: &Ticket) -> (Option<i64>, bool) {
        let Some(entry) = self.entry(ticket) else { return (None, false) };
        entry.state = State::Done;
        let Some(lane) = self.lanes.get_mut(&ticket.place) else { return (None, false) };
        let mut store = None;
        while lane.entries.front().is_some_and(|entry| entry.state == State::Done) {
            store = lane.entries.pop_front().map(|entry| entry.offset);
        }
        let resume = lane.paused && lane.entries.len() <= ROOM;
        lane.paused &= !resume;
        (store, resume)
    }

    /// It has to wait: until it is given back, nothing of its partition goes ahead of it.
    pub(super) fn hold(&mut self, ticket: &Ticket, failed: bool) {
        if let Some(entry) = self.entry(ticket) {
            entry.state = State::Held;
            entry.failures = entry.failures.saturating_add(u32::from(failed));
            entry.deliveries = entry.deliveries.saturating_add(1);
        }
    }

    /// It may be taken again.
    pub(super) fn back(&mut self, ticket: &Ticket) {
        if let Some(entry) = self.entry(ticket)
            && entry.state != State::Done
        {
            entry.state = State::Waiting;
        }
    }

    /// The partition is somebody else's now, or begins anew.
    pub(super) fn revoke(&mut self, place: &Place) {
        self.lanes.remove(place);
    }

    /// No partition is ours any more.
    pub(super) fn revoke_all(&mut self) {
        self.lanes.clear();
    }

    pub(super) fn is_paused(&self, place: &Place) -> bool {
        self.lanes.get(place).is_some_and(|lane| lane.paused)
    }

    /// It could not be told to go on; to be tried again after the next message that is done.
    pub(super) fn still_paused(&mut self, place: &Place) {
        if let Some(lane) = self.lanes.get_mut(place) {
            lane.paused = true;
        }
    }

    /// Gives nothing out any more.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(partition: i32) -> Place {
        ("t".into(), partition)
    }

    fn filled(window: u16, partitions: i32, n: i64) -> Lanes<i64> {
        let mut lanes = Lanes::new(window);
        for partition in 0..partitions {
            for offset in 0..n {
                lanes.add(&place(partition), offset, false, offset);
            }
        }
        lanes
    }

    #[test]
    fn a_partition_goes_on_only_when_its_message_is_done() {
        let mut lanes = filled(1, 1, 2);
        let (first, ..) = lanes.take().unwrap();
        assert!(lanes.take().is_none());
        assert_eq!(lanes.done(&first), (Some(0), false));
        assert_eq!(lanes.take().unwrap().1, 1);
    }

    #[test]
    fn partitions_go_side_by_side() {
        let mut lanes = filled(1, 2, 2);
        let (a, ..) = lanes.take().unwrap();
        let (b, ..) = lanes.take().unwrap();
        assert_ne!(a.place, b.place);
        assert!(lanes.take().is_none());
    }

    #[test]
    fn a_message_that_waits_holds_up_its_partition_and_no_other() {
        let mut lanes = filled(1, 2, 2);
        let (held, ..) = lanes.take().unwrap();
        lanes.hold(&held, true);
        let (other, ..) = lanes.take().unwrap();
        assert_ne!(other.place, held.place);
        assert!(lanes.take().is_none(), "the held one is not overtaken");
        lanes.back(&held);
        let (again, load, failures, deliveries) = lanes.take().unwrap();
        assert_eq!((again, load, failures, deliveries), (held, 0, 1, 1));
    }

    #[test]
    fn an_offset_is_stored_only_when_everything_before_it_is_done() {
        let mut lanes = filled(3, 1, 3);
        let [a, b, c] = [(), (), ()].map(|()| lanes.take().unwrap().0);
        assert_eq!(lanes.done(&b).0, None);
        assert_eq!(lanes.done(&c).0, None);
        assert_eq!(lanes.done(&a).0, Some(2));
    }

    #[test]
    fn what_was_out_when_its_partition_was_revoked_changes_nothing_later() {
        let mut lanes = filled(1, 1, 2);
        let (old, ..) = lanes.take().unwrap();
        lanes.revoke(&place(0));
        lanes.add(&place(0), 0, false, 0);
        assert_eq!(lanes.done(&old), (None, false));
        lanes.hold(&old, true);
        let (_, _, failures, _) = lanes.take().unwrap();
        assert_eq!(failures, 0);
    }

    #[test]
    fn a_partition_that_begins_anew_takes_what_is_before_its_old_messages() {
        let mut lanes = Lanes::new(1);
        lanes.add(&place(0), 10, false, 10);
        // Taken away and given back without a word in between: it begins at what was committed.
        lanes.revoke(&place(0));
        lanes.add(&place(0), 5, false, 5);
        assert_eq!(lanes.take().unwrap().1, 5);
    }

    #[test]
    fn a_topic_that_is_made_again_begins_a_new_life_of_its_lanes() {
        let mut lanes = filled(2, 1, 3);
        let (old, ..) = lanes.take().unwrap();
        // The same numbers, of other messages: nobody has revoked anything.
        for offset in 0..2 {
            lanes.add(&place(0), offset, false, 100 + offset);
        }
        assert_eq!(lanes.done(&old), (None, false), "it is not the first of the new ones");
        let [first, second] = [(), ()].map(|()| lanes.take().unwrap());
        assert_eq!((first.1, second.1), (100, 101));
        assert!(lanes.take().is_none(), "what is gone is not handled");
        assert_eq!(lanes.done(&second.0).0, None);
        assert_eq!(lanes.done(&first.0).0, Some(1));
    }

    #[test]
    fn a_partition_that_was_paused_when_it_was_made_again_goes_on() {
        let mut lanes = filled(1, 1, FULL as i64);
        lanes.add(&place(0), 0, false, 100);
        let (ticket, load, ..) = lanes.take().unwrap();
        assert_eq!((load, lanes.done(&ticket)), (100, (Some(0), true)));
    }

    #[test]
    fn a_full_partition_pauses_and_goes_on_when_there_is_room() {
        let mut lanes = Lanes::new(1);
        let paused = (0..FULL as i64).filter(|n| lanes.add(&place(0), *n, false, ()).1).count();
        assert_eq!(paused, 1);
        let mut resumed = 0;
        while let Some((ticket, ..)) = lanes.take() {
            resumed += u32::from(lanes.done(&ticket).1);
        }
        assert_eq!(resumed, 1);
    }
}
