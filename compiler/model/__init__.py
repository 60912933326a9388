"""The model as a graph, its sizes and symbols, and facts about operators: capture and graph both stand on it."""
