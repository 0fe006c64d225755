{{ config(materialized='table') }}
select sex, count(*) as people, round(avg(income_k), 1) as income_k
from {{ ref('people_synth') }}
group by sex
