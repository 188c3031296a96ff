//! P8: what a record costs in memory, and that a flood of keys stays within its limit.

use std::fs;
use std::time::Duration;

use onlyonce::{
    Answer, AttemptId, Begin, Claim, Fingerprint, Hash16, Key, Label, MemoryStore, Operation, Owner,
    RecordId, Scope, Settlement, Store, Takeover, Verdict,
};

use crate::Effort;
use onlyonce_bench_report::{Goal, Report};

const ANSWER: usize = 100;

/// Resident memory of this process, in bytes.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kilobytes: f64 =
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    kilobytes * 1024.0
}

/// Begins and completes call number `n`; says whether the store took it.
async fn complete(store: &MemoryStore, label: &Label, n: usize) -> bool {
    let key = Key::new(n.to_string()).expect("a key");
    let id = RecordId::of(&Scope::shared(), &Operation::http("POST", "/pay"), &key);
    let claim = Claim {
        owner: Owner::random(),
        fingerprint: Fingerprint::empty(),
        lease: Duration::from_secs(30),
        retain_unsettled: Duration::from_secs(3600),
        takeover: Takeover::Never,
        label: label.clone(),
    };
    let Ok(Begin::Acquired { fence, .. }) = store.begin(&id, &claim).await else { return false };
    let attempt = AttemptId { owner: claim.owner, fence: Some(fence) };
    let verdict = Verdict::Completed(Answer(vec![b'x'; ANSWER].into()));
    store.settle(&id, &attempt, &Settlement { verdict, retain: Duration::from_secs(3600) }).await.is_ok()
}

pub(crate) fn measure(effort: Effort, report: &mut Report) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let key = Key::new("k").expect("a key");
        let label = Label {
            route: "POST /pay".into(),
            key: Hash16::of_key(&key),
            scope: Hash16::of_scope(&Scope::shared()),
        };
        let before = resident();
        let store = MemoryStore::new().max_records(effort.records);
        for n in 0..effort.records {
            assert!(complete(&store, &label, n).await, "there is room for record {n}");
        }
        let each = (resident() - before) / effort.records as f64 - ANSWER as f64;
        report.add("P8", "memory store: bytes per record beside its answer", &[each], Goal::AtMost(320.0));

        let full = resident();
        let mut refused = 0_usize;
        for n in 0..effort.records {
            refused += usize::from(!complete(&store, &label, effort.records + n).await);
        }
        assert_eq!(refused, effort.records, "a full store takes no new record");
        let growth = resident() / full;
        report.add(
            "P8",
            "flood of as many new keys on a full store: memory after / before",
            &[growth],
            Goal::AtMost(1.05),
        );
    });
}
