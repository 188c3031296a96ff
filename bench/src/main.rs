//! Counts that no neighbour disturbs: instructions and allocations a call, writes and syncs, round trips and bytes on the wire.
//!
//! `cargo xtask bench --counts` runs this. Each count stands beside the one in `bench/counts.json`, and the program fails where it
//! is more than 5 % above; `--record` writes the file again.
//!
//! ```text
//!  case ─▶ valgrind counts run CASE 300, and 900 ─▶ the difference, for a call
//!       ─▶ valgrind onlyonce gateway …           ─▶ the same, with calls over a socket
//!       ─▶ the testkit's proxy before a server   ─▶ round trips and bytes
//! ```

mod calls;
mod case;
mod gateway;
#[path = "../benches/ratios/load.rs"]
#[allow(dead_code, reason = "the load by time is measured elsewhere")]
mod load;
mod recorded;
mod stores;
mod valgrind;
mod wire;

use std::process::ExitCode;

use case::Case;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => recorded::judge(&cases()),
        ["--record"] => recorded::record(&cases()),
        ["run", case, calls] => {
            let calls = calls.parse().expect("a number of calls");
            block_on(stores::run(case, calls));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: counts [--record], by `cargo xtask bench --counts`");
            ExitCode::from(2)
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = stores::CASES.iter().map(|name| Case::new(name, stores::count)).collect();
    cases.extend(gateway::CASES.iter().map(|name| Case::new(name, gateway::count)));
    cases.extend(wire::cases().map(|name| Case::new(name, wire::count)));
    cases
}

/// On one thread, so that the order of events does not depend on the machine.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}
