/// What the gate has counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: u64,
    pub(crate) handed_over: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
    pub(crate) abandoned: u64,
    pub(crate) released: u64,
    pub(crate) lost: u64,
}

impl Counters {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.granted += other.granted;
        self.handed_over += other.handed_over;
        self.denied += other.denied;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
        self.released += other.released;
        self.lost += other.lost;
    }
}
