-- Hash of a ledger entry: SHA-256 over its fields, each as '<bytes>:<text>', or '-' where NULL, so that no two
-- different entries have the same text. An expression over the columns of dpsql.ledger.
sha256(concat(
    coalesce(strlen(source) || ':' || source, '-'),
    coalesce(strlen(entry::VARCHAR) || ':' || entry::VARCHAR, '-'),
    coalesce(strlen(written_at::VARCHAR) || ':' || written_at::VARCHAR, '-'),
    coalesce(strlen(who) || ':' || who, '-'),
    coalesce(strlen(action) || ':' || action, '-'),
    coalesce(strlen(release) || ':' || release, '-'),
    coalesce(strlen(operation) || ':' || operation, '-'),
    coalesce(strlen(query) || ':' || query, '-'),
    coalesce(strlen(parameters) || ':' || parameters, '-'),
    coalesce(strlen(plan) || ':' || plan, '-'),
    coalesce(strlen(events) || ':' || events, '-'),
    coalesce(strlen(rho::VARCHAR) || ':' || rho::VARCHAR, '-'),
    coalesce(strlen(epsilon::VARCHAR) || ':' || epsilon::VARCHAR, '-'),
    coalesce(strlen(delta::VARCHAR) || ':' || delta::VARCHAR, '-'),
    coalesce(strlen(neighbors) || ':' || neighbors, '-'),
    coalesce(strlen(privacy_unit) || ':' || privacy_unit, '-'),
    coalesce(strlen(max_contributions::VARCHAR) || ':' || max_contributions::VARCHAR, '-'),
    coalesce(strlen(accountant) || ':' || accountant, '-'),
    coalesce(strlen(versions) || ':' || versions, '-'),
    coalesce(strlen(contents) || ':' || contents, '-'),
    coalesce(strlen(previous) || ':' || previous, '-')
))
