//! Taking a lock again that one has.

use onlyonce_core::lock::{LockError, Release};

use crate::world::*;

#[tokio::test]
async fn an_owner_takes_its_lock_again_and_the_last_guard_releases_it() {
    let world = World::new();
    let me = world.locks.owner();
    let guards: Vec<_> = {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(world.locks.key("a").owner(&me).acquire().await.unwrap());
        }
        guards
    };
    assert_eq!(world.server.acquires(), 1, "counted in this process");
    assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence()));
    let mut guards = guards.into_iter();
    assert_eq!(guards.next().unwrap().release().await.unwrap(), Release::StillHeld);
    drop(guards.next());
    rest().await;
    assert_eq!(world.server.memory.len(), 1);
    assert_eq!(guards.next().unwrap().release().await.unwrap(), Release::Released);
    assert!(world.server.memory.is_empty());
}

#[tokio::test]
async fn others_do_not_share_it() {
    let world = World::new();
    let (me, you) = (world.locks.owner(), world.locks.owner());
    let _guard = world.locks.key("a").owner(&me).acquire().await.unwrap();
    for request in [world.locks.key("a").owner(&you), world.locks.key("a"), world.elsewhere().key("a")] {
        assert!(matches!(request.acquire().await, Err(LockError::Busy { .. })));
    }
}

#[tokio::test]
async fn two_tasks_of_one_owner_do_not_wait_for_each_other() {
    let world = World::new();
    let me = world.locks.owner();
    let tasks: Vec<_> =
        (0..10).map(|_| tokio::spawn(world.locks.key("a").owner(&me).wait(TTL).acquire())).collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    assert_eq!(world.server.acquires(), 1);
}

#[tokio::test]
async fn a_lost_lock_is_taken_anew() {
    let world = World::new();
    let me = world.locks.owner();
    let lost = world.locks.key("a").ttl(TTL).max_hold(TTL).owner(&me).acquire().await.unwrap();
    world.pass(31).await;
    let guard = world.locks.key("a").owner(&me).acquire().await.unwrap();
    assert!(!guard.is_lost() && lost.is_lost() && guard.fence() > lost.fence());
    assert_eq!(lost.release().await.unwrap(), Release::TakenOver);
    assert!(!guard.is_lost());
}

#[tokio::test]
async fn an_owner_of_other_locks_is_refused() {
    let world = World::new();
    let stranger = world.elsewhere().owner();
    let refused = world.locks.key("a").owner(&stranger).acquire().await;
    assert!(matches!(refused, Err(LockError::Input(_))), "{refused:?}");
}
