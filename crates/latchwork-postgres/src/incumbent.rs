//! Who leads.

use std::sync::Arc;

use latchwork_core::{engine::IncumbentRequest, leader::Incumbent};
use tokio_postgres::{Row, types::Type};

use crate::{
    error::StatementError,
    identity::{Granted, Identity},
    link::{End, Link},
    sql,
};

/// Asks who holds a key, and answers.
pub(crate) async fn find(link: &mut Link, request: IncumbentRequest) -> Result<(), End> {
    let (classid, objid, objsubid) = (request.key.classid(), request.key.objid(), request.key.objsubid());
    let asked = link.ask_or_refuse(|client: Arc<_>| async move {
        let place = [
            (&classid as _, Type::OID),
            (&objid as _, Type::OID),
            (&i16::try_from(objsubid).unwrap_or_default() as _, Type::INT2),
        ];
        client.query_typed(sql::INCUMBENT, &place).await
    });
    let asked = asked.await?;
    link.settle().await?;
    request.reply.send(match asked {
        Ok(rows) => Ok(rows.first().map(incumbent)),
        Err(error) => Err(StatementError::from_driver(error).into_engine()),
    });
    Ok(())
}

/// Who the row of a holder tells of. A prepared transaction has no session, and so no name.
fn incumbent(row: &Row) -> Incumbent {
    let application_name: String = row.get::<_, Option<_>>(0).unwrap_or_default();
    let identity = Identity::parse(&application_name).map(|identity| identity.to_string());
    let granted = Granted::parse(&application_name);
    let mut incumbent = Incumbent::new(identity.unwrap_or(application_name));
    incumbent.host = row.get(1);
    incumbent.since = granted.map(|granted| granted.since);
    incumbent.term = granted.map(|granted| granted.term);
    incumbent
}
