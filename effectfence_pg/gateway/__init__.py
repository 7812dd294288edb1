"""A fence in front of any MCP server: every side-effecting call is fenced, with no change to the agent."""
