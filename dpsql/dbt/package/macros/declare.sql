{#- Budgets, domains, links and rules of schema.yml: collected from the project, and handed to the plugin (profiles.yml: dpsql.dbt). -#}

{#- Runs when dbt starts and ends, and before `dbt show` of a dp_synthetic model. Says at the end what could not be applied. -#}
{% macro declare(last=false) %}
  {%- if execute and flags.WHICH not in ('compile', 'docs', 'generate', 'list', 'parse') -%}
    {%- for notice in dpsql.ask('declare', {'nodes': dpsql.declared_nodes(), 'again': last}) if last -%}
      {%- do exceptions.warn('dpsql, schema.yml: ' ~ notice) -%}
    {%- endfor -%}
  {%- endif -%}
{% endmacro %}

{% macro declared_nodes() %}
  {%- set found = [] -%}
  {%- for node in graph.sources.values() | list + graph.nodes.values() | list
        if node.resource_type in ('source', 'seed', 'snapshot', 'model') and node.config.materialized not in ('dp_synthetic', 'dp_synthetic_table', 'dp_query', 'ephemeral') -%}
    {%- set meta = dpsql.declared_meta(node) -%}
    {%- set columns = dpsql.declared_columns(node) -%}
    {%- if meta or columns -%}
      {%- set name = node.source_name ~ '.' ~ node.name if node.resource_type == 'source' else node.name -%}
      {%- do found.append({'label': node.resource_type ~ ' ' ~ name, 'kind': node.resource_type, 'relation': node.relation_name,
                           'name': node.name, 'group': node.source_name if node.resource_type == 'source' else '',
                           'meta': meta, 'columns': columns}) -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return(found) }}
{% endmacro %}

{#- meta: {dpsql: ...}, or config: {meta: {dpsql: ...}}, of a node or of a column -#}
{% macro declared_meta(item) %}
  {%- set inner = ((item.get('config') or {}).get('meta') or {}).get('dpsql') -%}
  {{ return(inner or (item.get('meta') or {}).get('dpsql') or {}) }}
{% endmacro %}

{% macro declared_columns(node) %}
  {%- set found = {} -%}
  {%- for column in node.columns.values() -%}
    {%- set meta = dpsql.declared_meta(column) -%}
    {%- if meta -%}{%- do found.update({column.name: meta}) -%}{%- endif -%}
  {%- endfor -%}
  {{ return(found) }}
{% endmacro %}

{#- Asks the plugin. -#}
{% macro ask(action, given) %}
  {%- set loaded = run_query("select count(*) from duckdb_functions() where function_name = '__dp_dbt'") -%}
  {%- if loaded.columns[0].values()[0] == 0 -%}
    {%- do exceptions.raise_compiler_error("dpsql: the plugin is not loaded. In profiles.yml, beside `type: duckdb`, write:  plugins: [{module: dpsql.dbt}]") -%}
  {%- endif -%}
  {{ return(fromjson(run_query('select ' ~ dpsql.question(action, given)).columns[0].values()[0])) }}
{% endmacro %}

{% macro question(action, given) %}
  {%- set all = dict(given, interface=4) -%}
  {{ return('__dp_dbt(' ~ dpsql.literal(action) ~ ', ' ~ dpsql.literal(tojson(all)) ~ ', current_database(), current_schema())') }}
{% endmacro %}

{#- A value of Jinja as SQL -#}
{% macro literal(value) %}
  {%- if value is none -%}{{ return('NULL') }}
  {%- elif value is boolean -%}{{ return('true' if value else 'false') }}
  {%- elif value is number -%}{{ return(value | string) }}
  {%- elif value is string -%}{{ return("'" ~ value | replace("'", "''") ~ "'") }}
  {%- elif value is mapping -%}{{ return(dpsql.literal(tojson(value)) ~ '::JSON') }}
  {%- else -%}
    {%- set items = [] -%}
    {%- for item in value -%}{%- do items.append(dpsql.literal(item)) -%}{%- endfor -%}
    {{ return('[' ~ items | join(', ') ~ ']') }}
  {%- endif -%}
{% endmacro %}
