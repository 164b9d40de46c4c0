"""Show the lease at work: node processes, real work, two faults, and a verdict that the database gives.

::

    plan       who fails when, from a seed
    orders     the input: one day of orders
    tables     the demo's own tables: ticks, events, orders, totals, fences
    effects    the fenced load of the orders, and what refuses a former owner
    node       one node process: it asks for each due tick through the public API, and does the work if it won
    stage      where it happens: a PostgreSQL of its own, or a schema of its own in the user's database
    crew       the node processes: started, killed, stopped, woken, ended
    director   strikes the two nodes, and watches until all ticks are done
    verdict    what the database says at the end
    show       a live table, plain lines, or nothing

What the nodes do with tenure is what any program may do: only the names of `tenure` and `tenure.embedded` are used.
A lease has one owner at each instant, but a process that was stopped does not know that time went by. So the load
bears its fencing token, and the tables refuse a smaller one in the transaction that would have written (C7.1).
"""
