-- Hash of a ledger entry: SHA-256 over its fields, each as '<bytes>:<text>', or '-' where NULL, so that no two
-- different entries have the same text. An expression over the columns of dpsql.ledger.
system.main.sha256(system.main.concat(
    coalesce(system.main.strlen(source) || ':' || source, '-'),
    coalesce(system.main.strlen(entry::VARCHAR) || ':' || entry::VARCHAR, '-'),
    coalesce(system.main.strlen(written_at::VARCHAR) || ':' || written_at::VARCHAR, '-'),
    coalesce(system.main.strlen(who) || ':' || who, '-'),
    coalesce(system.main.strlen(action) || ':' || action, '-'),
    coalesce(system.main.strlen(release) || ':' || release, '-'),
    coalesce(system.main.strlen(operation) || ':' || operation, '-'),
    coalesce(system.main.strlen(query) || ':' || query, '-'),
    coalesce(system.main.strlen(parameters) || ':' || parameters, '-'),
    coalesce(system.main.strlen(plan) || ':' || plan, '-'),
    coalesce(system.main.strlen(events) || ':' || events, '-'),
    coalesce(system.main.strlen(rho::VARCHAR) || ':' || rho::VARCHAR, '-'),
    coalesce(system.main.strlen(epsilon::VARCHAR) || ':' || epsilon::VARCHAR, '-'),
    coalesce(system.main.strlen(delta::VARCHAR) || ':' || delta::VARCHAR, '-'),
    coalesce(system.main.strlen(neighbors) || ':' || neighbors, '-'),
    coalesce(system.main.strlen(privacy_unit) || ':' || privacy_unit, '-'),
    coalesce(system.main.strlen(max_contributions::VARCHAR) || ':' || max_contributions::VARCHAR, '-'),
    coalesce(system.main.strlen(accountant) || ':' || accountant, '-'),
    coalesce(system.main.strlen(versions) || ':' || versions, '-'),
    coalesce(system.main.strlen(contents) || ':' || contents, '-'),
    coalesce(system.main.strlen(previous) || ':' || previous, '-')
))
