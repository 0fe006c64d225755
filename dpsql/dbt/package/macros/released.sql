{#- What the materializations dp_synthetic, dp_synthetic_table and dp_query share: a table of what a call gives, which stands for the model's SELECT. -#}

{#- Makes the table of a model; `bought`: sql, the release that the comment of the table names (none: no comment), and of what
    the log says afterwards what was spent. -#}
{% macro table_of(bought) %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set intermediate = make_intermediate_relation(target) -%}
  {%- do drop_relation_if_exists(load_cached_relation(intermediate)) -%}
  {%- do run_hooks(pre_hooks, inside_transaction=False) -%}
  {%- do run_hooks(pre_hooks, inside_transaction=True) -%}
  {%- call statement('main') -%}
    {{ create_table_as(False, intermediate, bought.sql) }}
  {%- endcall -%}
  {%- if existing is not none -%}
    {%- do adapter.drop_relation(existing) -%}
  {%- endif -%}
  {%- do adapter.rename_relation(intermediate, target) -%}
  {%- do create_indexes(target) -%}
  {%- do run_hooks(post_hooks, inside_transaction=True) -%}
  {%- do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, full_refresh_mode=True)) -%}
  {%- do persist_docs(target, model) -%}
  {%- set described = model.description if config.persist_relation_docs() and model.description else '' -%}
  {%- if bought.release is not none -%}
    {%- do run_query('comment on table ' ~ target ~ ' is ' ~ dpsql.literal((described ~ '\n' if described else '') ~ 'dpsql release: ' ~ bought.release)) -%}
  {%- endif -%}
  {%- do adapter.commit() -%}
  {%- do run_hooks(post_hooks, inside_transaction=False) -%}
  {%- if bought.spent -%}{%- do dpsql.ask('spent', bought.spent) -%}{%- endif -%}
  {{ return({'relations': [target]}) }}
{% endmacro %}

{#- The arguments of a call that the model's config, or meta: {dpsql: ...} in it, names. The release is called <model>.<release>. -#}
{% macro call_arguments(names) %}
  {%- if flags.SAMPLE -%}
    {%- do exceptions.raise_compiler_error('--sample would make another query of this model, and buy another release of it') -%}
  {%- endif -%}
  {%- set shared = (config.get('meta') or {}).get('dpsql') or {} -%}
  {%- set given = {} -%}
  {%- for name in names -%}
    {%- set value = config.get(name, shared.get(name)) -%}
    {%- if value is not none -%}{%- do given.update({name: value}) -%}{%- endif -%}
  {%- endfor -%}
  {%- do given.update({'release': this.identifier ~ '.' ~ given.get('release', 'default')}) -%}
  {{ return(given) }}
{% endmacro %}

{#- A SELECT from a call: its first argument is SQL, the others have names. -#}
{% macro call_of(function, select, given) %}
  {%- set parts = [dpsql.literal(select)] -%}
  {%- for name, value in given.items() -%}{%- do parts.append(name ~ ' := ' ~ dpsql.literal(value)) -%}{%- endfor -%}
  {{ return('select * from ' ~ function ~ '(' ~ parts | join(', ') ~ ')') }}
{% endmacro %}

{#- `dbt show` of such a model shows what was released: dbt would run the SELECT, which reads the protected table. -#}
{% macro get_show_sql(compiled_code, sql_header, limit) %}
  {%- if model is defined and model.config.materialized in ('dp_synthetic', 'dp_synthetic_table', 'dp_query') -%}
    {%- do dpsql.declare() -%}
    {%- if model.config.materialized == 'dp_synthetic' -%}{%- set bought = dpsql.synthetic_query(compiled_code) -%}
    {%- elif model.config.materialized == 'dp_synthetic_table' -%}{%- set bought = dpsql.synthetic_table_query(compiled_code) -%}
    {%- else -%}{%- set bought = dpsql.answered_query(compiled_code) -%}
    {%- endif -%}
    {{ return(dbt.get_show_sql(bought.sql, sql_header, limit)) }}
  {%- endif -%}
  {{ return(dbt.get_show_sql(compiled_code, sql_header, limit)) }}
{% endmacro %}
