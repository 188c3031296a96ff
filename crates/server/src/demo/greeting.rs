//! What the demo prints when it is ready.

use std::net::SocketAddr;
use std::path::Path;

use crate::say::announce;

pub(super) fn print(address: SocketAddr, data: &Path) {
    let data = data.display();
    announce!(
        r#"
onlyonce demo: http://{address}
records and charges are kept in {data}; stop with Ctrl-C

Open the page, or try it from here:

  # pay; then run the same line again: the same receipt, no second charge
  curl -i http://{address}/payments -H 'Idempotency-Key: try-1' -H 'Content-Type: application/json' -d '{{"order":"coffee","amount":450}}'

  # the same key with another amount is refused
  curl -i http://{address}/payments -H 'Idempotency-Key: try-1' -H 'Content-Type: application/json' -d '{{"order":"coffee","amount":99900}}'

  # twenty at once: one charge
  seq 20 | xargs -P 20 -I_ curl -s http://{address}/payments -H 'Idempotency-Key: try-2' -H 'Content-Type: application/json' -d '{{"order":"tea","amount":300}}'

  # what became of my call?
  curl -s 'http://{address}/_onlyonce/outcome?path=/payments' -H 'Idempotency-Key: try-1'

  # what really happened at the bank
  curl -s http://{address}/demo/charges
"#
    );
}
