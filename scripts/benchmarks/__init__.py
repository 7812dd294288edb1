"""What the fence costs, measured beside raw psycopg on the same server in the same run."""
