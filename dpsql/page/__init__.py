"""The report of a release as one HTML page: figures from released numbers, charts, words. Never sees a table.

Privacy: everything here is post-processing of a release; what the custodian compares it with is handed in, and marked.
"""
