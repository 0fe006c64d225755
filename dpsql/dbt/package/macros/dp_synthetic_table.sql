{#- materialized='dp_synthetic_table': one of several linked tables, from the synthetic database that the root's `synthesize` in
    schema.yml describes. The model is `select * from {{ source(...) }}`, or names columns; the SELECT itself is never run.

    All such models are of one release, called <root>.<release>; it is charged once, whichever of them are built, how often. -#}

{% materialization dp_synthetic_table, adapter='duckdb' %}
  {{ return(dpsql.table_of(dpsql.synthetic_table_query(sql))) }}
{% endmaterialization %}

{#- The SELECT from the synthetic database that stands for a model's. -#}
{% macro synthetic_table_query(select) %}
  {%- if flags.EMPTY -%}
    {{ return({'sql': 'select * from (' ~ select ~ ') as source where false limit 0', 'release': none}) }}
  {%- endif -%}
  {%- if flags.SAMPLE -%}
    {%- do exceptions.raise_compiler_error('--sample would make another query of this model, which is a whole table of a release') -%}
  {%- endif -%}
  {%- set shared = (config.get('meta') or {}).get('dpsql') or {} -%}
  {%- for name in ('epsilon', 'delta', 'method', 'options', 'rows', 'units', 'seed', 'release', 'columns') -%}
    {%- if config.get(name, shared.get(name)) is not none -%}
      {%- do exceptions.raise_compiler_error(name ~ ': a dp_synthetic_table model has no release of its own; schema.yml says it once, under the root: meta: {dpsql: {synthesize: {...}}}') -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return(dpsql.ask('linked_table', {'source': select, 'label': 'model ' ~ model.name})) }}
{% endmacro %}
