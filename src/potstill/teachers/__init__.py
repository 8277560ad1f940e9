"""teachers"""
