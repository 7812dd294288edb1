"""The fence as a server of the Model Context Protocol: an agent fences deliberately. Needs the extra ``mcp``."""
