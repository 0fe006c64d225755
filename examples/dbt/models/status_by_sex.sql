{{ config(materialized='table') }}
select sex, status, n
from dp_marginals('{{ ref("stg_people") }}', columns := ['sex', 'status'], epsilon := 0.3, release := 'status by sex')
