"""Answers to calls: releases as tables, the books as relations, plans, reports, cards."""
