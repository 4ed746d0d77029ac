//! Keeps both instances up.

use std::io::{self, Write};
use std::time::Duration;

use crate::account::note;
use crate::failure::Failure;
use crate::instance::LISTENING;
use crate::pair::Pair;

/// Prints the URLs, and goes on until both instances have ended.
pub(crate) async fn serve(pair: &mut Pair) -> Result<(), Failure> {
    let mut output = io::stdout();
    for instance in &pair.instances {
        writeln!(output, "{LISTENING}{}", instance.url())?;
    }
    output.flush()?;
    if let Some(notice) = pair.database.notice() {
        note(&notice);
    }
    note(&format!(
        "Two instances of one service share {}:",
        pair.database.description()
    ));
    for instance in &pair.instances {
        note(&format!("   {}", instance.description()));
    }
    let [a, b] = &pair.instances;
    note(&format!(
        "Try, in two terminals:\n   curl -i -X POST '{}/orders/42/charge?ms=10000'\n   curl -i -X POST \
         '{}/orders/42/charge?ms=10000'\n   curl -i '{}/ai?ms=10000'\nCtrl-C ends both and leaves nothing behind.",
        a.url(),
        b.url(),
        b.url()
    ));
    while_one_is_alive(pair).await
}

/// One may be killed to see what the other gets; without both there is nothing left to serve.
async fn while_one_is_alive(pair: &mut Pair) -> Result<(), Failure> {
    let mut gone = [false; 2];
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        for (instance, gone) in pair.instances.iter_mut().zip(&mut gone) {
            if *gone {
                continue;
            }
            if let Some(status) = instance.ended()? {
                note(&format!("instance {} has ended ({status})", instance.name()));
                *gone = true;
            }
        }
        if gone == [true; 2] {
            return Err(Failure::new("both instances have ended"));
        }
    }
}

const LOOK_INTERVAL: Duration = Duration::from_millis(200);
