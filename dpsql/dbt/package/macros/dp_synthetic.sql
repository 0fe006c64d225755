{#- materialized='dp_synthetic': the table holds synthetic rows of what the model's SELECT says. The SELECT itself is never run.

    config: epsilon; method, delta, options, rows, seed (as dp_synthesize); release ('default'). The release is called
    <model>.<release>; it is charged once, however often the model is built. -#}

{% materialization dp_synthetic, adapter='duckdb' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set intermediate = make_intermediate_relation(target) -%}
  {{ drop_relation_if_exists(load_cached_relation(intermediate)) }}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set bought = dpsql.synthetic_query(sql) -%}
  {% call statement('main') -%}
    {{ create_table_as(False, intermediate, bought.sql) }}
  {%- endcall %}
  {%- if existing is not none -%}
    {% do adapter.drop_relation(existing) %}
  {%- endif -%}
  {% do adapter.rename_relation(intermediate, target) %}
  {% do create_indexes(target) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, full_refresh_mode=True)) %}
  {% do persist_docs(target, model) %}
  {%- set described = model.description if config.persist_relation_docs() and model.description else '' -%}
  {%- if bought.release is not none -%}
    {% do run_query('comment on table ' ~ target ~ ' is ' ~ dpsql.literal((described ~ '\n' if described else '') ~ 'dpsql release: ' ~ bought.release)) %}
  {%- endif -%}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{#- The call that stands for a model's SELECT, after all that can be checked has been. -#}
{% macro synthetic_query(select) %}
  {%- if flags.EMPTY -%}
    {{ return({'sql': 'select * from (' ~ select ~ ') as source where false limit 0', 'release': none}) }}
  {%- endif -%}
  {%- if flags.SAMPLE -%}
    {%- do exceptions.raise_compiler_error('--sample would make another query of this model, and buy another release of it') -%}
  {%- endif -%}
  {%- set shared = (config.get('meta') or {}).get('dpsql') or {} -%}
  {%- set given = {} -%}
  {%- for name in ('method', 'epsilon', 'delta', 'rows', 'seed', 'options', 'release') -%}
    {%- set value = config.get(name, shared.get(name)) -%}
    {%- if value is not none -%}{%- do given.update({name: value}) -%}{%- endif -%}
  {%- endfor -%}
  {%- do given.update({'release': this.identifier ~ '.' ~ given.get('release', 'default')}) -%}
  {%- set checked = dpsql.ask('check', {'source': select, 'release': given.release, 'method': given.get('method'),
                                        'label': 'model ' ~ model.name, 'columns': dpsql.declared_columns(model),
                                        'rules': dpsql.declared_meta(model).get('rules')}) -%}
  {%- if checked.columns is not none -%}{%- do given.update({'columns': checked.columns}) -%}{%- endif -%}
  {%- set parts = [dpsql.literal(select)] -%}
  {%- for name, value in given.items() -%}{%- do parts.append(name ~ ' := ' ~ dpsql.literal(value)) -%}{%- endfor -%}
  {{ return({'sql': 'select * from dp_synthesize(' ~ parts | join(', ') ~ ')', 'release': checked.release}) }}
{% endmacro %}

{#- `dbt show` of a dp_synthetic model shows synthetic rows: dbt would run the SELECT, which reads the protected table. -#}
{% macro get_show_sql(compiled_code, sql_header, limit) %}
  {%- if model is defined and model.config.materialized == 'dp_synthetic' -%}
    {%- do dpsql.declare() -%}
    {%- set compiled_code = dpsql.synthetic_query(compiled_code).sql -%}
    {{ return(dbt.get_show_sql(compiled_code, sql_header, limit)) }}
  {%- endif -%}
  {{ return(dbt.get_show_sql(compiled_code, sql_header, limit)) }}
{% endmacro %}
