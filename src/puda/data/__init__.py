"""From files of facts to a frozen graph."""
