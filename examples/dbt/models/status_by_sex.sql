{{ config(materialized='table') }}
select "values"[1] as sex, "values"[2] as status, n
from dp_marginals('{{ ref("stg_people") }}', columns := ['sex', 'status'], k := 2, epsilon := 0.3, release := 'status by sex')
