select age, sex, income / 1000.0 as income_k, status
from {{ source('raw', 'people') }}
