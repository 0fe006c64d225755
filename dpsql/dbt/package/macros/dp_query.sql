{#- materialized='dp_query': the table holds the private answer to the model's SELECT, an aggregate query. DuckDB itself never runs it.

    config: epsilon; delta, groups, max_groups, max_rows_per_group, max_rows, bounds, min_units, confidence, mechanism, options (as dp_query);
    release ('default'). The release is called <model>.<release>; it is charged once, however often the model is built. -#}

{% materialization dp_query, adapter='duckdb' %}
  {{ return(dpsql.table_of(dpsql.answered_query(sql))) }}
{% endmaterialization %}

{#- The call that stands for a model's SELECT. -#}
{% macro answered_query(select) %}
  {%- if flags.EMPTY -%}
    {{ return({'sql': 'select * from (' ~ select ~ ') as source where false limit 0', 'release': none}) }}
  {%- endif -%}
  {%- set given = dpsql.call_arguments(('epsilon', 'delta', 'groups', 'max_groups', 'max_rows_per_group', 'max_rows', 'bounds', 'min_units',
                                        'confidence', 'mechanism', 'options', 'release')) -%}
  {%- set checked = dpsql.ask('check_query', {'call': dict(given, sql=select), 'label': 'model ' ~ model.name}) -%}
  {{ return({'sql': dpsql.call_of('dp_query', select, given), 'release': none, 'spent': checked}) }}
{% endmacro %}
