//! A fenced transaction, a step at a time.

use std::time::Duration;

use latchwork_core::{fence::Fence, xact::FencedLimits};
use latchwork_postgres::transaction::XactLockExt as _;
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

/// A task with a connection, which does its steps while the process listens for more.
pub(crate) struct Work(mpsc::UnboundedSender<String>);

impl Work {
    pub(crate) async fn connect(url: &str, fence: Fence) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let (sender, steps) = mpsc::unbounded_channel();
        tokio::spawn(work(client, fence, steps));
        Self(sender)
    }

    pub(crate) fn tell(&self, step: &str) {
        self.0.send(step.to_owned()).unwrap();
    }
}

async fn work(mut client: Client, fence: Fence, mut steps: mpsc::UnboundedReceiver<String>) {
    let mut next = async |step: &str| {
        let told = steps.recv().await.unwrap();
        told.strip_prefix(step).unwrap().trim().to_owned()
    };
    next("begin").await;
    let transaction = client.transaction().await.unwrap();
    println!("begun");
    let idle = Duration::from_millis(next("prove").await.parse().unwrap());
    let proof = transaction.prove_fence(&fence, FencedLimits::default().with_idle(idle));
    if let Err(refused) = proof.without_limit().await {
        println!("proof {refused:?}");
        return;
    }
    transaction.batch_execute("INSERT INTO work VALUES (1)").await.unwrap();
    println!("proof accepted");
    next("commit").await;
    println!("committed {}", transaction.commit().await.is_ok());
}
