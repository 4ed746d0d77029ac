//! Several quotas that are charged together, and what their rows are named by.

use sha2::{Digest, Sha256};

use super::{Quota, QuotaError};

/// The most quotas that one check may be held against.
pub const MAX_QUOTAS: usize = 4;

/// One to [`MAX_QUOTAS`] quotas for the same key, charged all or none.
///
/// What is kept for a key belongs to the key *and* its quotas: with other quotas, or the same in another order, the same
/// key starts afresh. So a deployment that changes a quota allows both for as long as old and new instances run side by
/// side.
///
/// # Examples
///
/// ```
/// use latchwork_core::rate::{Quota, Quotas};
///
/// let quotas = Quotas::all([Quota::per_second(10)?, Quota::per_hour(1_000)?])?;
/// assert_eq!(quotas.len(), 2);
/// # Ok::<(), latchwork_core::rate::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    all: [Quota; MAX_QUOTAS],
    len: u8,
    id: i64,
}

impl Quotas {
    /// Takes several quotas.
    ///
    /// # Errors
    ///
    /// [`QuotaError::NoQuota`] for none, [`QuotaError::TooManyQuotas`] for more than [`MAX_QUOTAS`].
    pub fn all(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, QuotaError> {
        let mut quotas = quotas.into_iter();
        let mut these = Self::from(quotas.next().ok_or(QuotaError::NoQuota)?);
        for quota in quotas {
            let place = these.all.get_mut(usize::from(these.len));
            *place.ok_or(QuotaError::TooManyQuotas)? = quota;
            these.len += 1;
        }
        these.id = id(these.as_slice());
        Ok(these)
    }

    /// The quotas, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Quota] {
        &self.all[..usize::from(self.len)]
    }

    /// How many quotas there are; at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// The most that one charge may cost.
    #[must_use]
    pub fn highest_cost(&self) -> u32 {
        self.as_slice().iter().map(Quota::burst).min().unwrap_or_default()
    }

    /// A number that is the same in all processes and versions for the same quotas, and is even.
    pub(super) const fn id(&self) -> i64 {
        self.id
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Self {
            all: [quota; MAX_QUOTAS],
            len: 1,
            id: id(&[quota]),
        }
    }
}

impl From<&Self> for Quotas {
    fn from(quotas: &Self) -> Self {
        *quotas
    }
}

impl<const N: usize> TryFrom<[Quota; N]> for Quotas {
    type Error = QuotaError;

    fn try_from(quotas: [Quota; N]) -> Result<Self, QuotaError> {
        Self::all(quotas)
    }
}

impl TryFrom<&[Quota]> for Quotas {
    type Error = QuotaError;

    fn try_from(quotas: &[Quota]) -> Result<Self, QuotaError> {
        Self::all(quotas.iter().copied())
    }
}

/// The first 8 bytes, big-endian, of the SHA-256 over each quota's interval in nanoseconds and burst, with the lowest bit
/// cleared. Pinned by a test: processes of different versions count together.
fn id(quotas: &[Quota]) -> i64 {
    let mut hash = Sha256::new();
    for quota in quotas {
        hash.update(quota.step(1).to_be_bytes());
        hash.update(quota.burst().to_be_bytes());
    }
    let hash = hash.finalize();
    i64::from_be_bytes(*hash.first_chunk().expect("a SHA-256 hash has 32 bytes")) & !1
}
