//! What becomes of a handler whose client has left.

/// What becomes of a handler whose client leaves before it is done.
///
/// When a client is seen to leave is the server's business: hyper drops the request at once when the connection ends,
/// also when only the client's half of it does, but not while a body of 60 KB or more is unread, nor while a further
/// request is pipelined. actix-web drops an HTTP/1 request at once when the connection is reset, but when it is only
/// closed lets it run on, unless the server is set up with `h1_allow_half_closed(false)`. With HTTP/2 it never drops one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// The handler is dropped where it stands, then what it held is given up.
    #[default]
    Cancel,
    /// The handler runs to its end in a task of its own, and what it holds is given up then. A client that leaves
    /// while the request still waits to be let in cancels it all the same.
    Complete,
}
