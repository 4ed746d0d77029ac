-- The tables of latchwork, version 1. One statement, so that it is one transaction wherever it runs. It may run again,
-- and beside others.
DO $latchwork$
BEGIN
  -- Others who install wait here, and then find everything done.
  PERFORM pg_catalog.pg_advisory_xact_lock('3993274512873470849'::pg_catalog.int8);

  IF pg_catalog.to_regnamespace('latchwork') IS NULL THEN
    CREATE SCHEMA latchwork;
  END IF;

  IF pg_catalog.to_regclass('latchwork.schema_version') IS NULL THEN
    CREATE TABLE latchwork.schema_version (
      is_only pg_catalog.bool PRIMARY KEY DEFAULT true CHECK (is_only),
      version pg_catalog.int4 NOT NULL
    );
    INSERT INTO latchwork.schema_version (version) VALUES (1);
  END IF;

  -- What a newer version has made is its own.
  IF (SELECT v.version OPERATOR(pg_catalog.>) 1 FROM latchwork.schema_version AS v) THEN
    RETURN;
  END IF;

  -- One row for each key and its quotas. The theoretical arrival times are nanoseconds since 1970. No index but the
  -- primary key's, and room on each page, so that a charge changes one page and no index.
  IF pg_catalog.to_regclass('latchwork.rate_limits') IS NULL THEN
    CREATE UNLOGGED TABLE latchwork.rate_limits (
      key pg_catalog.int8 NOT NULL,
      quotas pg_catalog.int8 NOT NULL,
      tat1 pg_catalog.int8 NOT NULL,
      tat2 pg_catalog.int8,
      tat3 pg_catalog.int8,
      tat4 pg_catalog.int8,
      admitted pg_catalog.int4 NOT NULL,
      PRIMARY KEY (key, quotas)
    ) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
  END IF;

  -- One row for each idempotency key: the SHA-256 of its scope and itself, and the response that is stored for it.
  IF pg_catalog.to_regclass('latchwork.idempotency') IS NULL THEN
    CREATE TABLE latchwork.idempotency (
      id pg_catalog.bytea PRIMARY KEY,
      fingerprint pg_catalog.bytea NOT NULL,
      state pg_catalog.text NOT NULL,
      status pg_catalog.int2,
      headers pg_catalog.bytea,
      body pg_catalog.bytea,
      expires_at pg_catalog.timestamptz NOT NULL
    );
    CREATE INDEX idempotency_expires_at ON latchwork.idempotency (expires_at);
  END IF;

  -- One row for each job that runs by ticks: the last tick that was claimed, and what came of it. The number of the claim
  -- tells it from others on the same tick. Room on the page, so that a run changes no index.
  IF pg_catalog.to_regclass('latchwork.ticks') IS NULL THEN
    CREATE TABLE latchwork.ticks (
      key pg_catalog.int8 PRIMARY KEY,
      name pg_catalog.text NOT NULL,
      tick pg_catalog.timestamptz NOT NULL,
      claim pg_catalog.int8 NOT NULL,
      claimed_by pg_catalog.text NOT NULL,
      claimed_at pg_catalog.timestamptz NOT NULL,
      ended_at pg_catalog.timestamptz,
      outcome pg_catalog.text
    ) WITH (fillfactor = 50);
  END IF;
END
$latchwork$;
