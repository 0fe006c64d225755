{#- On a source, seed, table or view: fails if less than min_epsilon is left for one more release, or the ledger was edited. -#}
{% test dp_budget_remaining(model, min_epsilon) %}
  select coalesce(budget.source, wanted.relation) as source, budget.epsilon_left, budget.chain_holds,
    case when budget.source is null then 'it has no privacy budget: put this test on the protected table'
         when not budget.chain_holds then 'the ledger was edited'
         when not starts_with(budget.books, 'intact') then 'the ledger does not agree with its anchor'
         else 'less than min_epsilon is left' end as reason
  from (select {{ dpsql.literal(model | string) }} as relation) as wanted
  left join dp_budget({{ dpsql.literal(model | string) }}) as budget on true
  where budget.source is null or not budget.chain_holds or not starts_with(budget.books, 'intact')
    or budget.epsilon_left < {{ min_epsilon }}
{% endtest %}

{#- On a dp_synthetic model: fails where its table may be farther (total variation distance) than max_tvd from the raw one.
    What is too far, and how far, is printed, and is the reason in the rows that `--store-failures` keeps.
    against='released' (default, private): distance from the released noisy tables of up to k columns, plus a bound for the noise.
    against='raw': distance from the raw tables of k columns. NOT PRIVATE: pass or fail is a bit about raw counts. -#}
{% test dp_within_error(model, max_tvd, k=1, against='released', release=none) %}
  select unnest(from_json({{ dpsql.question('within_error', {'relation': model | string, 'max_tvd': max_tvd, 'k': k,
    'against': against, 'release': release, 'severity': config.get('severity', 'error')}) }}, '["VARCHAR"]')) as reason
{% endtest %}
