{{ config(materialized='dp_synthetic', epsilon=1.0, release=var('release', 'default')) }}
select age, sex, income_k from {{ ref('stg_people') }}
