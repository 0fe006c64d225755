{#- materialized='dp_synthetic': the table holds synthetic rows of what the model's SELECT says. The SELECT itself is never run.

    config: epsilon; method, delta, options, rows, seed (as dp_synthesize); release ('default'). The release is called
    <model>.<release>; it is charged once, however often the model is built. -#}

{% materialization dp_synthetic, adapter='duckdb' %}
  {{ return(dpsql.table_of(dpsql.synthetic_query(sql))) }}
{% endmaterialization %}

{#- The call that stands for a model's SELECT, after all that can be checked has been. -#}
{% macro synthetic_query(select) %}
  {%- if flags.EMPTY -%}
    {{ return({'sql': 'select * from (' ~ select ~ ') as source where false limit 0', 'release': none}) }}
  {%- endif -%}
  {%- set given = dpsql.call_arguments(('method', 'epsilon', 'delta', 'rows', 'seed', 'options', 'release')) -%}
  {%- set checked = dpsql.ask('check', {'source': select, 'release': given.release, 'method': given.get('method'),
                                        'label': 'model ' ~ model.name, 'columns': dpsql.declared_columns(model),
                                        'rules': dpsql.declared_meta(model).get('rules')}) -%}
  {%- if checked.columns is not none -%}{%- do given.update({'columns': checked.columns}) -%}{%- endif -%}
  {{ return({'sql': dpsql.call_of('dp_synthesize', select, given), 'release': checked.release, 'spent': checked}) }}
{% endmacro %}
