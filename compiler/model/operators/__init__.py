"""Operators of mycc's own, and which operators the lowering takes whole."""
